"""Planted errors: how many of them do the checks of derivatives, the laws and the fuzzer see?"""
