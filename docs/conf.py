"""How the site is built: `make docs`, or sphinx-build docs docs/_build/html."""

from __future__ import annotations

import sys
from pathlib import Path

import trimtab

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "Trimtab"
author = "the Trimtab authors"
version = release = trimtab.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "commands",
    "docstrings",
    "pages",
]
exclude_patterns = ["_build"]
smartquotes = False  # "ndcg" is code, and --salt in a sentence is an option, not a dash
nitpicky = True
# Only names of this site can be links: other projects' inventories would have to be fetched.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!trimtab).*"),
    (r"py:class", r"trimtab\..*"),  # types of arguments and results that are not promised
]

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]
myst_heading_anchors = 3
# Docstrings put names in single backticks.
default_role = "code"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_typehints_format = "short"
autodoc_type_aliases = dict.fromkeys(("Codes", "Flags", "Floats", "Ints", "Singles"), "NDArray")
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"Trimtab {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_last_updated_fmt = None
pygments_style = "tango"
pygments_dark_style = "github-dark"
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
copybutton_exclude = ".linenos, .gp"
