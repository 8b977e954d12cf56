"""Logs of other tools, as those tools write them."""

import json
import zipfile

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]


def request(name, messages=ASKED):
    body = {"model": "m", "messages": messages, "n": 2}
    return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}


def reply(name, *texts, **message):
    choices = [
        {"index": i, "message": {"role": "assistant", "content": text, **message}, "finish_reason": "stop"}
        for i, text in enumerate(texts)
    ]
    body = {"id": "c", "object": "chat.completion", "model": "m", "choices": choices, "usage": {}}
    response = {"status_code": 200, "request_id": "r", "body": body}
    return {"id": "batch_req_1", "custom_id": name, "response": response, "error": None}


def failure(name, status=None, error=None):
    response = None if status is None else {"status_code": status, "body": {"error": {"message": "too long"}}}
    return {"id": "x", "custom_id": name, "response": response, "error": error}


def sample(name, epoch, text, **more):
    return {
        "id": name, "epoch": epoch, "input": "2+2?", "target": "4", "messages": [], "metadata": {},
        "output": {"model": "m", "choices": [{"message": {"role": "assistant", "content": text}, "stop_reason": "stop"}]},
        "scores": {"match": {"value": "C" if "4" in text else "I", "answer": text}}, **more,
    }  # fmt: skip


def lm_eval(number, *responses, **more):
    return {
        "doc_id": number, "doc": {"question": "?"}, "target": "Because.\n#### 4",
        "arguments": {"gen_args_0": {"arg_0": f"Q: 2+2? ({number})", "arg_1": {"until": ["\n"]}}},
        "resps": [list(responses)], "filtered_resps": ["4"] * len(responses), "filter": "strict",
        "metrics": ["exact_match"], "doc_hash": "h", "exact_match": 1.0, **more,
    }  # fmt: skip


def result(name, **more):
    return {
        "question_title": "Sum", "question_content": "Add.", "platform": "leetcode", "question_id": name,
        "contest_id": "c", "contest_date": "2024-09-01T00:00:00", "starter_code": "", "difficulty": "easy",
        "output_list": ["```python\nprint(1)\n```", "no"], "code_list": ["print(1)", ""],
        "graded_list": [True, False], "pass@1": 0.5, "metadata": ["{}", "{}"], **more,
    }  # fmt: skip


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def archive(path, members, packing=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", packing) as file:
        file.writestr("header.json", "{}")
        for name, content in members.items():
            file.writestr(name, content if isinstance(content, str | bytes) else json.dumps(content))
    return str(path)
