"""Write a file's bytes as a C array: bytes_to_c.py NAME INPUT OUTPUT. Declared in descriptors.h."""

import sys

name, source, target = sys.argv[1:]
with open(source, "rb") as file:
    data = file.read()
with open(target, "w") as file:
    file.write('#include "descriptors.h"\n\n')
    file.write(f"const unsigned char {name}[] = {{\n")
    for at in range(0, len(data), 20):
        file.write("    " + "".join(f"{byte}," for byte in data[at : at + 20]) + "\n")
    file.write(f"}};\nconst size_t {name}_size = sizeof({name});\n")
