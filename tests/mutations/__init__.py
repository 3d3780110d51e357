"""Small patches that break the product on purpose; each must turn a named test red.

A suite that stays green when the fence is taken down proves nothing about fences. A patch file
begins with `what:` (the promise that it breaks) and `red:` (the test that notices); the rest is a
diff of `src`. `make mutate` runs them on copies.
"""
