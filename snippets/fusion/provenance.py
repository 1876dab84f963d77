"""Which line of the source a line of generated code comes from. Two lines belong together if they compute the same expression.

Every stage below is Python, so `ast` reads all of them: an FX graph, Inductor's loop body and a Triton kernel.
"""
import ast

OPERATORS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Mod: "mod"}
CASTS = {"convert_element_type", "to_dtype", "to"}
SINKS = {"store", "store_reduction"}


# --8<-- [start:expression]
def expression(node, values):
    """What an expression computes, in tuples that do not depend on names. Casts are left out: Triton's code has others."""
    match node:
        case ast.Name():
            return values.get(node.id, node.id)
        case ast.Constant(value=value):
            return float(value) if isinstance(value, (int, float)) else value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return -expression(node.operand, values)
        case ast.BinOp():
            return operator(OPERATORS.get(type(node.op), "other"), [node.left, node.right], values)
        case ast.Call():
            return call(node, values)
    return ast.unparse(node)


def call(node, values):
    name = called(node)
    if name == "to":  # tl.load(...).to(tl.float32)
        return expression(node.func.value, values)
    if name == "constant" or name in CASTS:  # ops.constant(0.5, torch.float16)
        return expression(node.args[0], values)
    if name == "load":  # tl.load(in_ptr0 + x0, None), ops.load('arg0_1', get_index)
        return expression(leftmost(node.args[0]), values)
    if name == "full":  # tl.full([1], 0.5, tl.float32)
        return expression(node.args[1], values)
    return operator(name, node.args, values)


def operator(name, operands, values):
    operands = [expression(operand, values) for operand in operands]
    return (name, *(sorted(operands, key=repr) if name in ("add", "mul") else operands))
# --8<-- [end:expression]


def called(node):
    """The operator that a call names: add of aten.add.Tensor, of ops.add; erf of libdevice.erf; to of a cast."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
        return "to"
    parts = ast.unparse(node.func).split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def leftmost(node):
    while isinstance(node, ast.BinOp):
        node = node.left
    return node


def read(text):
    """(name, value, whether it returns) of a line `name = value`, of a call or of a return; no name and no value of another."""
    try:
        (statement,) = ast.parse(text.strip()).body
    except (SyntaxError, ValueError):
        return None, None, False
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    name = targets[0].id if isinstance(targets[0], ast.Name) else None
    return name, getattr(statement, "value", None), isinstance(statement, ast.Return)


def facts(texts, values=()):
    """Of each line: its name, the expression it computes, whether it only casts, what it uses, whether it is an end."""
    values, found = dict(values), []
    for text in texts:
        name, value, returns = read(text)
        key = None if value is None else expression(value, values)
        if name and value is not None:
            values[name] = key
        found.append({"name": name, "key": (key, called(value) in CASTS), "uses": uses(value), "returns": returns,
                      "end": value is not None and (name is None or called(value) in SINKS)})
    return found


def uses(value):
    """The names, and the names in quotes, that an expression holds."""
    parts = ast.walk(value) if value is not None else ()
    return {getattr(part, "id", None) or getattr(part, "value", None) for part in parts if isinstance(part, (ast.Name, ast.Constant))}


# --8<-- [start:link]
def link(texts, owners, values=()):
    """Lines with the operations they come from: by their expression; a load, a number or an index from what uses it."""
    lines = facts(texts, values)
    origins = [owners.get(line["key"], []) if line["key"][0] is not None else [] for line in lines]
    return spread(texts, lines, origins)


def spread(texts, lines, origins):
    origins = [list(origin) for origin in origins]
    by_name = {line["name"]: number for number, line in enumerate(lines) if line["name"]}
    for number, line in enumerate(lines):
        if line["end"] and not origins[number]:  # a store or a return: from what it stores
            origins[number] = sum((origins[by_name[name]] for name in line["uses"] if name in by_name), [])
    for number in reversed(range(len(lines))):
        if not origins[number] and (name := lines[number]["name"]):
            users = [user for user, line in enumerate(lines) if name in line["uses"] and not line["returns"]]
            origins[number] = sum((origins[user] for user in users), [])
    return [{"text": text, "from": sorted(set(origin))} for text, origin in zip(texts, origins, strict=True)]


def owners_of(lines):
    """{expression: its operations} of a linked stage, here of AOTAutograd's graph, whose nodes say where they come from."""
    found = {}
    for line, fact in zip(lines, facts([line["text"] for line in lines]), strict=True):
        found.setdefault(fact["key"], line["from"])
    return found
# --8<-- [end:link]
