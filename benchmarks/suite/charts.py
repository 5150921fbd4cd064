def draw(output, name, section): pass
