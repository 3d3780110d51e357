"""The web page: static files, an ordinary client of the public `/v1` (O-4).

    static/index.html   the shell: icons, style, one script
    static/js           ES modules, served as they are; `screens/` has one module per screen
    static/vendor       lit-html and uPlot, unchanged (VENDOR.md)

There is no build step. `files.py` makes routes of the files; `programs/page.py` mounts them at `/`.
To add a screen, add a module to `static/js/screens` and a line to its `index.js`.
"""
