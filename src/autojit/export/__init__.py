"""Steps as native libraries; see the README of the folder."""
