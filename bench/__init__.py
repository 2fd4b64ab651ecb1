"""Side-by-side measurements, as ratios within one run: `make bench`.

Each subject is a module with `rows(bench) -> Iterator[Row]`, named in `__main__.SUBJECTS`.
"""
