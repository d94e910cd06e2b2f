"""Graphs with open sizes, as text, for every kind of kernel; sizes that they are run with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autojit.ir import Graph

BATCHES = tuple({"s0": n} for n in (2, 3, 7, 64, 37, 100, 256, 1000, 5))
PAIRS = tuple({"s0": a, "s1": b} for a, b in ((3, 5), (8, 64), (2, 2), (5, 33), (16, 128), (2, 300)))
INDEX_RANGE = 5  # of random integers: in range of every axis that is indexed

LOOPS = {
    "a map and folds over all, over rows and to a number": """(x: f32[s0, 64], b: f32[64]) {
      y: f32[s0, 64] = add(x, b);
      z: f32[s0, 64] = tanh(y);
      s: f32[64] = sum[axes=(0,)](z);
      t: f32[] = amax[axes=(0, 1)](z);
      return z, s, t }""",
    "a mean": """(x: f32[s0, 64]) {
      s: f32[64] = sum[axes=(0,)](x);
      n: f32[] = size_value[size=s0, dtype=f32]();
      m: f32[64] = div(s, n);
      return m }""",
    "a flat walk": """(x: f32[s0, 64]) {
      y: f32[64*s0] = reshape[shape=(64*s0,)](x);
      t: f32[64*s0] = tanh(y);
      z: f32[64, s0] = reshape[shape=(64, s0)](t);
      r: f32[64] = sum[axes=(1,)](z);
      return r, t }""",
    "positions of extrema": """(x: f32[s0, 37]) {
      i: i64[s0] = argmax[axes=(1,)](x);
      j: i64[37] = argmax[axes=(0,)](x);
      return i, j }""",
    "joined pieces": """(x: f32[s0, 50], y: f32[s0, 14]) {
      z: f32[s0, 64] = concatenate[axis=1](x, y);
      w: f32[2*s0, 64] = concatenate[axis=0](z, z);
      return z, w }""",
}
LOOPS_OF_TWO = {
    "a softmax over a row of any length": """(x: f32[s0, 4, s1]) {
      m: f32[s0, 4] = amax[axes=(2,)](x);
      mm: f32[s0, 4, 1] = reshape[shape=(s0, 4, 1)](m);
      d: f32[s0, 4, s1] = sub(x, mm);
      e: f32[s0, 4, s1] = exp(d);
      s: f32[s0, 4] = sum[axes=(2,)](e);
      ss: f32[s0, 4, 1] = reshape[shape=(s0, 4, 1)](s);
      r: f32[s0, 4, s1] = div(e, ss);
      return r }""",
    "heads out and back": """(x: f32[s0, s1, 128]) {
      h: f32[s0, s1, 8, 16] = reshape[shape=(s0, s1, 8, 16)](x);
      t: f32[s0, 8, s1, 16] = permute[axes=(0, 2, 1, 3)](h);
      u: f32[s0, 8, s1, 16] = tanh(t);
      w: f32[s0, s1, 8, 16] = permute[axes=(0, 2, 1, 3)](u);
      o: f32[s0, s1, 128] = reshape[shape=(s0, s1, 128)](w);
      p: f32[s0, s1, 128] = add(o, x);
      return p }""",
    "rows of two axes as one": """(x: f32[s0, s1, 128]) {
      h: f32[s0*s1, 128] = reshape[shape=(s0*s1, 128)](x);
      e: f32[s0*s1, 128] = tanh(h);
      s: f32[128] = sum[axes=(0,)](e);
      b: f32[s0, s1, 128] = reshape[shape=(s0, s1, 128)](e);
      u: f32[s0, 128] = sum[axes=(1,)](b);
      return s, u }""",
    "a causal mask": """(x: f32[s0, s1]) {
      a: i64[s1, s1] = iota[shape=(s1, s1), axis=0, dtype=i64]();
      b: i64[s1, s1] = iota[shape=(s1, s1), axis=1, dtype=i64]();
      c: bool[s1, s1] = le(b, a);
      z: f32[] = full[value=-1.0, dtype=f32, shape=()]();
      o: f32[] = full[value=2.0, dtype=f32, shape=()]();
      w: f32[s1, s1] = where(c, z, o);
      return c, w }""",
    "padding, a part, the other way round": """(x: f32[s0, s1]) {
      p: f32[s0+3, s1+2] = pad[low=(1, 2), high=(2, 0), interior=(0, 0), value=1.5](x);
      s: f32[s0, s1-1] = slice[starts=(0, 1), stops=(s0, s1), steps=(1, 1)](x);
      f: f32[s0, s1] = flip[axes=(1,)](x);
      q: f32[s0, s1] = add(x, f);
      return p, s, q }""",
    "the last position": """(x: f32[s0, s1, 8], w: f32[8, 5]) {
      l: f32[s0, 1, 8] = slice[starts=(0, s1-1, 0), stops=(s0, s1, 8), steps=(1, 1, 1)](x);
      r: f32[s0, 8] = reshape[shape=(s0, 8)](l);
      y: f32[s0, 5] = matmul(r, w);
      return y }""",
    "looked-up rows": """(x: f32[50, 64], i: i64[s0, s1]) {
      j: i64[s0*s1] = reshape[shape=(s0*s1,)](i);
      y: f32[s0*s1, 64] = index_select[axis=0](x, j);
      z: f32[s0, s1, 64] = reshape[shape=(s0, s1, 64)](y);
      s: f32[s0, s1] = sum[axes=(2,)](z);
      return z, s }""",
}
PRODUCTS = {
    "rows of any number": """(x: f32[s0, 784], w: f32[784, 64]) {
      y: f32[s0, 64] = matmul(x, w);
      return y }""",
    "a contraction of any length": """(x: f32[s0, 784], y: f32[s0, 64]) {
      t: f32[784, s0] = permute[axes=(1, 0)](x);
      z: f32[784, 64] = matmul(t, y);
      return z }""",
    "columns of any number": """(x: f32[64, 100], y: f32[s0, 100]) {
      t: f32[100, s0] = permute[axes=(1, 0)](y);
      z: f32[64, s0] = matmul(x, t);
      return z }""",
    "a layer after the other": """(x: f32[s0, 64], w: f32[64, 64], b: f32[64]) {
      y: f32[s0, 64] = matmul(x, w);
      z: f32[s0, 64] = add(y, b);
      r: f32[s0, 64] = tanh(z);
      v: f32[64, 64] = permute[axes=(1, 0)](w);
      q: f32[s0, 64] = matmul(r, v);
      s: f32[64] = amax[axes=(0,)](q);
      return s, q }""",
    "whole numbers": """(x: i64[s0, 20], y: i64[20, s0]) {
      z: i64[s0, s0] = matmul(x, y);
      return z }""",
}
ATTENTION = """(q: f32[s0, 4, s1, 16], k: f32[s0, 4, s1, 16]) {
      t: f32[s0, 4, 16, s1] = permute[axes=(0, 1, 3, 2)](k);
      a: f32[s0, 4, s1, s1] = matmul(q, t);
      m: f32[s0, 4, s1] = amax[axes=(3,)](a);
      mm: f32[s0, 4, s1, 1] = reshape[shape=(s0, 4, s1, 1)](m);
      d: f32[s0, 4, s1, s1] = sub(a, mm);
      e: f32[s0, 4, s1, s1] = exp(d);
      v: f32[s0, 4, s1, 16] = matmul(e, k);
      return v }"""
STRUCTURED = {
    "sums at places": """(b: f32[50, 64], i: i64[s0], g: f32[s0, 64]) {
      y: f32[50, 64] = index_update[axis=0, combine='add'](b, g, i);
      return y }""",
    "sums at places of zeros": """(i: i64[s0], g: f32[s0, 64]) {
      b: f32[50, 64] = full[value=0.0, dtype=f32, shape=(50, 64)]();
      y: f32[50, 64] = index_update[axis=0, combine='add'](b, g, i);
      return y }""",
    "a column per row": """(b: f32[s0, 50], i: i64[s0, 1], g: f32[s0, 1]) {
      y: f32[s0, 50] = scatter[axis=1, combine='add'](b, g, i);
      z: f32[s0, 1] = gather[axis=1](y, i);
      return y, z }""",
    "running sums": """(x: f32[s0, 40, 8]) {
      a: f32[s0, 40, 8] = cumulative[kind='sum', axis=0, reverse=True](x);
      b: f32[s0, 40, 8] = cumulative[kind='sum', axis=1, reverse=False](x);
      c: f32[8, s0, 40] = permute[axes=(2, 0, 1)](x);
      d: f32[8, s0, 40] = cumulative[kind='sum', axis=2, reverse=False](c);
      return a, b, d }""",
    "an op called back": """(x: f32[s0, 40]) {
      y: f32[s0, 40], i: i64[s0, 40] = sort[axis=1, descending=False, ranks=None](x);
      z: f32[s0, 40] = tanh(y);
      return z, i }""",
}
CHAIN = """(x: f32[s0, 64], w: f32[64, 64], y: f32[s0, 64]) {
      a: f32[s0, 64] = matmul(x, w);
      b: f32[s0, 64] = tanh(a);
      c: f32[s0, 64] = matmul(b, w);
      d: f32[s0, 64] = sub(c, y);
      t: f32[64, s0] = permute[axes=(1, 0)](b);
      g: f32[64, 64] = matmul(t, d);
      s: f32[64] = sum[axes=(0,)](d);
      q: f32[s0, 64] = square(d);
      l: f32[] = sum[axes=(0, 1)](q);
      return g, s, l }"""
WINDOW = "stride=(1, 1), padding=(1, 1), dilation=(1, 1)"


def convolutions(groups: int) -> str:
    channels = 8 // groups
    return f"""(x: f32[s0, 8, 16, 16], w: f32[16, {channels}, 3, 3]) {{
      y: f32[s0, 16, 16, 16] = convolution[extents=(16, 16), {WINDOW}, groups={groups}](x, w);
      a: f32[s0, 8, 16, 16] = convolution_input[extents=(16, 16), {WINDOW}, groups={groups}](y, w);
      b: f32[16, {channels}, 3, 3] = convolution_weight[extents=(3, 3), {WINDOW}, groups={groups}](x, y);
      return y, a, b }}"""


def draw(graph: Graph, seed: int = 0) -> list[NDArray[Any]]:
    """Random arrays of the types of a graph's inputs."""
    rng = np.random.default_rng(seed)
    found = []
    for value in graph.inputs:
        dtype = value.type.dtype
        numbers = rng.standard_normal(value.type.shape)
        found.append(
            numbers.astype(dtype.numpy)
            if dtype.kind == "float"
            else rng.integers(0, INDEX_RANGE, value.type.shape).astype(dtype.numpy)
        )
    return found
