"""Nodes: what the body of a block is made of. A node holds one array; arrays within are nodes.

    tag u8 | width u8 | flags u8 | zero u8 | count u32
    validity bitmap     if flags has VALIDITY: one bit a value, 1 where there is one
    null bitmap         if flags has NULLS: 1 where the attribute is explicitly null
    then by tag:
      NOTHING           nothing: no value is valid
      PLAIN             count values of the column's own width, little-endian
      OFFSETS           u64 base | count unsigned integers of `width` bytes to add to it
      STEPS             u64 first | u64 smallest step | count-1 integers to add to that
      DECIMALS          u64 exponent | integer node: value × 10^exponent of each float
      BITS              count bits
      TEXT              integer node of lengths | u64 size | the bytes of all
      DICTIONARY        integer node of positions | TEXT node of the distinct values
      LISTS             integer node of lengths | node of all elements

Every piece is padded with zeros to a multiple of 8, so that a body stored raw is aligned. Width 0
means that all integers are 0. Places without a value hold whatever is cheapest.
"""

from __future__ import annotations

import struct

NODE = struct.Struct("<BBBxI")
WORD = struct.Struct("<Q")
TWO_WORDS = struct.Struct("<QQ")

NOTHING, PLAIN, OFFSETS, STEPS, DECIMALS, BITS, TEXT, DICTIONARY, LISTS = range(9)

VALIDITY = 1
NULLS = 2

WIDTHS = {0: "u1", 1: "u1", 2: "<u2", 4: "<u4", 8: "<u8"}
