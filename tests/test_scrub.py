"""What is private in a string is taken out, and what only looks like it stays."""
import pytest

from harness import scrub

GPU_UUID = "GPU-1a2b3c4d-0011-2233-4455-66778899aabb"
PRIVATE = [  # (text, what is left of it)
    ("/home/bob/secret/run.py", "run.py"),
    ("at /data/x.", "at x."),
    ("-I/usr/include/x -L/opt/lib/y -isystem/usr/local/inc", "-Ix -Ly -isysteminc"),
    ("file:///home/u/x", "x"),
    ("file:///odd/place/x", "x"),
    ('loc("/somewhere/of/mine/k.py":3:0)', 'loc("k.py":3:0)'),
    ("'/home/bob/a b'", "'a b'"),
    ("TMP=/var/tmp/q;next", "TMP=q;next"),
    ("/site1/bob:/site2/eve", "bob:eve"),
    ("/home//bob//x", "x"),
    ("[rank0]/home/bob/x", "[rank0]x"),
    ("# kernel path: /tmp/torchinductor_bob/ab/cxy.py", "# kernel path: cxy.py"),
    ('File "/venv/lib/python3.11/site-packages/torch/_inductor/x.py", line 3', 'File "torch/_inductor/x.py", line 3'),
    ("/usr/lib/python3/dist-packages/triton/jit.py", "triton/jit.py"),
    ("/venv/site-packages/torch/utils/data/loader.py", "torch/utils/data/loader.py"),
    (f"{scrub.ROOT}/snippets/fusion/x.py", "snippets/fusion/x.py"),
    (r"C:\Users\bob\x.py", "x.py"),
    (r"'C:\\Users\\bob\\x.py'", "'x.py'"),
    ("D:/work/bob/x.py", "x.py"),
    (r"C:\Python\Lib\site-packages\torch\x.py", "torch/x.py"),
    (GPU_UUID, "(removed)"),
    (GPU_UUID.upper(), "GPU-(removed)"),
    ("id 123e4567-e89b-12d3-a456-426614174000!", "id (removed)!"),
    ("bus 00000000:3B:00.0 and 0000:3b:00.1", "bus (removed) and (removed)"),
    ("Serial Number: 1654123", "(removed)"),
    ("serial_number=1654123, next", "(removed) next"),
]
HARMLESS = [
    "TB/s", "read/write", "https://example.org/a/b", "https://example.org/data/b", "http://localhost:8000/home/x/",
    "1/2", "y = a / b", "(a + b)/n/2", "docs/en/x.md", "src/data/x.py", "docs/**/*.md", "12/06/2025", "// a comment",
    "</summary></details>", "torch/utils/data/x.py", "a://b", "12:30:45.5", "0:00:01.5",
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::Half>, std::array<char*, 3ul> >(int)",
    "%5 = arith.divf %3, %4 : tensor<128xf32>", "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32",
]


@pytest.mark.parametrize(("text", "left"), PRIVATE)
def test_scrub_takes_out_what_is_private(text, left):
    assert scrub.scrub(text) == left


@pytest.mark.parametrize(("text", "left"), PRIVATE)
def test_leak_finds_exactly_what_scrub_would_remove(text, left):
    found = scrub.leak({"a": [1, "fine", {"b": text}]})
    assert found and found in text
    assert scrub.leak(left) is None


@pytest.mark.parametrize("text", HARMLESS)
def test_scrub_leaves_harmless_text_alone(text):
    assert scrub.scrub(text) == text
    assert scrub.leak(text) is None


def test_scrub_takes_out_the_names_of_host_and_user(monkeypatch):
    monkeypatch.setattr(scrub.socket, "gethostname", lambda: "node17.corp.example")
    monkeypatch.setattr(scrub.getpass, "getuser", lambda: "bob")
    assert scrub.scrub("bob@node17.corp.example on node17, torchinductor_bob, bobbin") == "user@host on host, torchinductor_user, bobbin"


@pytest.mark.parametrize("ordinary", ["nvidia", "triton", "gpu", "root"])
def test_scrub_keeps_words_that_are_a_records_own(monkeypatch, ordinary):
    monkeypatch.setattr(scrub.getpass, "getuser", lambda: ordinary)
    monkeypatch.setattr(scrub.socket, "gethostname", lambda: ordinary)
    assert scrub.scrub({ordinary: f"{ordinary}_poi_fused_0"}) == {ordinary: f"{ordinary}_poi_fused_0"}


def test_scrub_works_without_a_passwd_entry(monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 1000")
    monkeypatch.setattr(scrub.getpass, "getuser", nobody)
    assert scrub.scrub("/home/bob/x.py of 1000") == "x.py of 1000"


def test_scrub_reaches_nested_values_and_keys():
    nested = {"/home/bob/a.py": [("/tmp/x/b.py", 3), None, {"k": GPU_UUID}], "n": 1.5}
    assert scrub.scrub(nested) == {"a.py": [["b.py", 3], None, {"k": "(removed)"}], "n": 1.5}
    assert scrub.leak({"/home/bob/a.py": 1}) == "/home/bob/a.py"
