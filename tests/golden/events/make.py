"""Events with the protocol buffers of TensorBoard: python make.py [DIR]."""
import io, json, sys
from pathlib import Path

from PIL import Image
from tensorboard.compat.proto import event_pb2, summary_pb2, types_pb2
from tensorboard.plugins.hparams import plugin_data_pb2

here = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
setup = json.loads((here / "setup.json").read_text())


def flat(value, path=""):
    if not isinstance(value, dict):
        return [] if value is None else [(path, value)]
    return [x for key, below in value.items() for x in flat(below, f"{path}.{key}" if path else key)]


def event(step):
    return event_pb2.Event(wall_time=setup["wall_time"], step=step)


def strings(value, values):
    value.tensor.dtype = types_pb2.DT_STRING
    value.tensor.tensor_shape.dim.add(size=len(values))
    value.tensor.string_val.extend(values)


def save(name, made):
    (here / name).write_bytes(made.SerializeToString(deterministic=True))


# ---- Settings ----
settings = event(0)
start = plugin_data_pb2.HParamsPluginData()
start.session_start_info.start_time_secs = setup["wall_time"]
for key, value in flat(setup["settings"]):
    entry = start.session_start_info.hparams[key]
    if isinstance(value, bool):
        entry.bool_value = value
    elif isinstance(value, (int, float)):
        entry.number_value = value
    else:
        entry.string_value = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
value = settings.summary.value.add(tag="_hparams_/session_start_info")
value.metadata.plugin_data.plugin_name = "hparams"
value.metadata.plugin_data.content = start.SerializeToString(deterministic=True)
value.tensor.dtype = types_pb2.DT_FLOAT
value.tensor.tensor_shape.dim.add(size=0)
rows = [f"| {key} | {json.dumps(x, separators=(',', ':'))} |".replace("w|d", "w\\|d") for key, x in flat(setup["settings"])]
value = settings.summary.value.add(tag="settings/text_summary")
value.metadata.plugin_data.plugin_name = "text"
strings(value, ["\n".join(["| setting | value |", "|---|---|", *rows, ""]).encode()])
save("settings.event", settings)
(here / "settings.json").write_text(json.dumps(setup["settings"]) + "\n")

# ---- A picture ----
width, height = setup["size"]
png = io.BytesIO()
Image.frombytes("RGB", (width, height), bytes(range(0, 10 * width * height * 3, 10))).save(png, "PNG")
(here / "picture.png").write_bytes(png.getvalue())
picture = event(setup["step"])
value = picture.summary.value.add(tag=setup["tag"])
value.metadata.summary_description = setup["description"]
value.metadata.plugin_data.plugin_name = "images"
value.metadata.data_class = summary_pb2.DATA_CLASS_BLOB_SEQUENCE
strings(value, [str(width).encode(), str(height).encode(), png.getvalue()])
save("picture.event", picture)
