"""Imports scripts, whose names have no ending, for tests of what they compute."""

import importlib.machinery
import importlib.util


def load_script(directory, name):
    loader = importlib.machinery.SourceFileLoader(name, str(directory / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module
