"""A journal goes in, one self-contained page with its figures comes out."""
