#!/usr/bin/env python3
"""Conversations as transformers (5.24) lays them out by chat templates and encodes them: cases.jsonl.

    python3 -m venv /tmp/chat && /tmp/chat/bin/pip install transformers && /tmp/chat/bin/python tests/golden/chat_templates/make.py

The templates beside this file are ours. Each writes what the template of a published family is known to write, in the
words of Jinja that such templates use; sentences in them are ours too. The tokenizer is tests/golden/tokenizer/qwen2 with
the tokens of each family behind it, or one of tests/golden/tokenizer/families. A line of cases.jsonl is a template over a
tokenizer, and conversations."""
import json, os
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
CHATML, LLAMA_3 = ["<|im_start|>", "<|im_end|>"], ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
INST = ["[INST]", "[/INST]"]
TEKKEN = ["[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"]
DEEP = ["<\uff5c%s\uff5c>" % name.replace(" ", "\u2581") for name in (
    "begin of sentence", "end of sentence", "User", "Assistant", "tool calls begin", "tool calls end", "tool call begin",
    "tool call end", "tool sep", "tool outputs begin", "tool outputs end", "tool output begin", "tool output end")]
PHI = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"]

# name: special tokens, added tokens, roles of tokens, what it can do
FAMILIES = {
    "llama_2": (["<s>", "</s>"], [], {"bos_token": "<s>", "eos_token": "</s>"}, "system"),
    "llama_3": (["<|begin_of_text|>"] + LLAMA_3, [], {"bos_token": "<|begin_of_text|>"}, "system"),
    "llama_3_1": (["<|begin_of_text|>"] + LLAMA_3, [], {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}, "system tools date"),
    "llama_4": (["<|begin_of_text|>", "<|header_start|>", "<|header_end|>", "<|eot|>", "<|python_start|>", "<|image|>"], [],
                {"bos_token": "<|begin_of_text|>"}, "system tools parts"),
    "qwen_2_5": (CHATML, TAGS, {"eos_token": "<|im_end|>"}, "system tools"),
    "qwen_3": (CHATML, TAGS, {"eos_token": "<|im_end|>"}, "system tools thoughts switch"),
    "qwen_3_coder": (CHATML, TAGS, {"eos_token": "<|im_end|>"}, "system tools"),
    "qwen_2_5_vl": (CHATML + ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>"], [], {"eos_token": "<|im_end|>"}, "system parts"),
    "gemma_2": (["<bos>", "<start_of_turn>", "<end_of_turn>"], ["\n\n"], {"bos_token": "<bos>"}, ""),
    "gemma_3": (["<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>"], ["\n\n"], {"bos_token": "<bos>"}, "system parts"),
    "mistral_v1": (["<s>", "</s>"], [], {"bos_token": "<s>", "eos_token": "</s>"}, "system"),
    "mistral_v3": (["<s>", "</s>"] + INST + TEKKEN, [], {"bos_token": "<s>", "eos_token": "</s>"}, "system tools"),
    "mistral_v3_tekken": (["<s>", "</s>"] + INST + TEKKEN, [], {"bos_token": "<s>", "eos_token": "</s>"}, "system tools"),
    "mistral_v7": (["<s>", "</s>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"] + INST + TEKKEN, [],
                   {"bos_token": "<s>", "eos_token": "</s>"}, "system calls"),
    "magistral": (["<s>", "</s>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[ARGS]", "[THINK]", "[/THINK]"] + INST + TEKKEN, [],
                  {"bos_token": "<s>", "eos_token": "</s>"}, "system tools thoughts parts"),
    "mixtral": (["<s>", "</s>"], [], {"bos_token": "<s>", "eos_token": "</s>"}, ""),
    "deepseek_v2": (DEEP[:2], [], {"bos_token": DEEP[0], "eos_token": DEEP[1]}, "system"),
    "deepseek_v3": (DEEP, [], {"bos_token": DEEP[0], "eos_token": DEEP[1]}, "system calls"),
    "deepseek_r1": (DEEP, ["<think>", "</think>"], {"bos_token": DEEP[0], "eos_token": DEEP[1]}, "system calls spoken"),
    "deepseek_v3_1": (DEEP, ["<think>", "</think>"], {"bos_token": DEEP[0], "eos_token": DEEP[1]}, "system tools spoken thinking"),
    "phi_3": (PHI, [], {"eos_token": "<|endoftext|>"}, "system"),
    "phi_3_5": (PHI, [], {"eos_token": "<|endoftext|>"}, "system"),
    "phi_4": (["<|im_start|>", "<|im_sep|>", "<|im_end|>"], [], {"eos_token": "<|im_end|>"}, "system"),
    "phi_4_mini": (PHI + ["<|tool|>", "<|/tool|>"], [], {"eos_token": "<|endoftext|>"}, "system told"),
    "gpt_oss": (["<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>", "<|call|>"], [],
                {"eos_token": "<|return|>"}, "system developer tools thoughts today"),
    "glm_4": (["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"], [], {}, "system tools"),
    "glm_4_5": (["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"],
                TAGS + ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"], {}, "system tools thoughts switch"),
    "kimi_k2": (["<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"],
                ["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>",
                 "<|tool_call_argument_begin|>"], {"eos_token": "<|im_end|>"}, "system tools"),
    "command_r": (["<BOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|SYSTEM_TOKEN|>", "<|USER_TOKEN|>",
                   "<|CHATBOT_TOKEN|>"], [], {"bos_token": "<BOS_TOKEN>"}, "system documents"),
    "granite_3": (["<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|tool_call|>"], [],
                  {"eos_token": "<|end_of_text|>"}, "system tools documents"),
    "smollm_3": (CHATML, TAGS, {"eos_token": "<|im_end|>"}, "system today switch"),
    "olmo_2": (["<|endoftext|>"], [], {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}, "system"),
    "falcon_3": (["<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>"], [], {"eos_token": "<|endoftext|>"}, "system tools"),
    "internlm_2_5": (["<s>"] + CHATML, [], {"bos_token": "<s>"}, "system"),
    "yi": (CHATML, [], {"eos_token": "<|im_end|>"}, "system"),
    "nemotron": (["<extra_id_0>", "<extra_id_1>"], [], {}, "system tools"),
    "ernie_4_5": (["<|begin_of_sentence|>", "<|end_of_sentence|>"], ["<think>", "</think>"],
                  {"cls_token": "<|begin_of_sentence|>", "eos_token": "<|end_of_sentence|>"}, "system thoughts switch"),
    "hunyuan": (["<|startoftext|>", "<|extra_0|>", "<|extra_4|>", "<|eos|>"], [],
                {"bos_token": "<|startoftext|>", "eos_token": "<|eos|>"}, "system switch"),
    "exaone": (["[|system|]", "[|user|]", "[|assistant|]", "[|endofturn|]"], [], {"eos_token": "[|endofturn|]"}, "system"),
    "hermes": (["<|begin_of_text|>"] + CHATML, [], {"bos_token": "<|begin_of_text|>"}, "system tools"),
    "zephyr": (["</s>"], [], {"eos_token": "</s>"}, "system"),
    "vicuna": (["</s>"], [], {"eos_token": "</s>"}, "system"),
    "alpaca": (["</s>"], [], {"eos_token": "</s>"}, "system"),
    "marked": (["<s>"] + CHATML, [], {"bos_token": "<s>"}, "system marks"),
}
# Templates over tokenizers of other kinds: with prefixes, of SentencePiece, with tokens that strip white space.
OVER = [("llama_2", "llama2"), ("mistral_v1", "mistral"), ("mistral_v3", "mistral"), ("gemma_3", "gemma"), ("phi_3", "phi3"),
        ("zephyr", "llama2"), ("vicuna", "llama2"), ("llama_3", "llama3"), ("deepseek_v3", "deepseek3"), ("qwen_3", "qwen2"),
        ("alpaca", "unigram_bytes"), ("olmo_2", "neox"), ("marked", "llama2"), ("ernie_4_5", "mistral")]
USER, SAID = {"role": "user", "content": " What is red? "}, {"role": "assistant", "content": "An apple is.\n"}
ASKED, TOLD = {"role": "user", "content": "And  blue?\n\nSay it."}, {"role": "assistant", "content": " The sky, 3 days of 7."}
SYSTEM = {"role": "system", "content": "Be brief. "}
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "Weather of a place", "parameters": {"type": "object", "properties": {
        "place": {"type": "string", "description": "a town"}, "days": {"type": "integer"}}, "required": ["place"]}}},
         {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "call00001", "type": "function", "function": {
    "name": "weather", "arguments": {"place": "K\u00f6ln", "days": 2}}}]}
RESULT = {"role": "tool", "name": "weather", "tool_call_id": "call00001", "content": "{\"rain\": true}"}
DOCUMENTS = [{"doc_id": 1, "title": "Rain", "text": "It falls."}, {"doc_id": 2, "title": "Sun", "text": "It shines."}]


def think(message, thought):
    return {**message, "reasoning_content": thought}


def conversations(can):
    yield "plain", [USER, SAID], {}
    yield "turns", [USER, SAID, ASKED, TOLD], {}
    yield "question", [USER, SAID, ASKED], {"add_generation_prompt": True}
    yield "open end", [USER, SAID, ASKED], {}
    if "system" in can:
        yield "system", [SYSTEM, USER, SAID, ASKED, TOLD], {}
        yield "system question", [SYSTEM, ASKED], {"add_generation_prompt": True}
    if "developer" in can:
        yield "developer", [{**SYSTEM, "role": "developer"}, ASKED, TOLD], {}
    if "tools" in can or "calls" in can:
        tools = {"tools": TOOLS} if "tools" in can else {}
        yield "call", [ASKED, CALL, RESULT, TOLD], tools
        yield "call in turns", [USER, SAID, ASKED, CALL, RESULT, TOLD, USER, SAID], tools
        yield "call without content", [ASKED, {**CALL, "content": None}, RESULT, TOLD], tools
        yield "result", [ASKED, CALL, RESULT], {**tools, "add_generation_prompt": True}
        if "system" in can:
            yield "call and system", [SYSTEM, ASKED, CALL, RESULT, TOLD], tools
    if "tools" in can:
        yield "tools", [ASKED], {"tools": TOOLS, "add_generation_prompt": True}
    if "told" in can:
        yield "tools in a message", [{**SYSTEM, "tools": json.dumps(TOOLS)}, ASKED, TOLD], {}
    if "thoughts" in can:
        yield "thought", [USER, think(SAID, "Red, hm.\n")], {}
        yield "thoughts", [USER, think(SAID, "Red, hm."), ASKED, think(TOLD, "Blue?\nYes.")], {}
        if "tools" in can:
            yield "thoughts and call", [ASKED, think(CALL, "I ask."), RESULT, think(TOLD, "It rains."), USER, think(SAID, "Red.")], {"tools": TOOLS}
        yield "other name", [USER, {**SAID, "reasoning": "Red, hm."}], {}
    if "thoughts" in can or "spoken" in can:
        yield "spoken thought", [USER, {**SAID, "content": "<think>\nRed, hm.\n</think>\n\nAn apple."}, ASKED, {**TOLD, "content": "<think>Sky</think>It is the sky."}], {}
        yield "thought in a question", [{**USER, "content": "Say <think>red</think>!"}, SAID], {}
    if "switch" in can:
        for value in (False, True):
            yield f"enable_thinking {value}", [ASKED], {"enable_thinking": value, "add_generation_prompt": True}
        yield "switched off", [USER, SAID], {"enable_thinking": False}
    if "thinking" in can:
        yield "thinking", [ASKED], {"thinking": True, "add_generation_prompt": True}
    if "documents" in can:
        yield "documents", [USER, SAID, ASKED], {"documents": DOCUMENTS, "add_generation_prompt": True}
    if "parts" in can:
        yield "texts", [{**USER, "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": " red?"}]}, SAID], {}


def encode(name, special, added, roles, can, table="qwen2/tokenizer"):
    core = Tokenizer.from_file(os.path.join(HERE, "../tokenizer", table + ".json"))
    there = {token.content for token in core.get_added_tokens_decoder().values()}
    core.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special if s not in there])
    core.add_tokens([AddedToken(s, special=False, normalized=False) for s in added if s not in there])
    with open(os.path.join(HERE, name + ".jinja")) as file:
        template = file.read()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, chat_template=template, **roles)
    cases = []
    for title, messages, options in conversations(can.split()):
        options = dict(options)
        if "date" in can.split():
            options["date_string"] = "26 Jul 2024"
        if "today" in can.split():
            options["today"] = "2025-06-01"
        marks = "generation %}" in template or "generation -%}" in template
        case = {"name": title, "messages": messages, "prompt": options.pop("add_generation_prompt", False)}
        try:
            got = tokenizer.apply_chat_template(messages, add_generation_prompt=case["prompt"], return_assistant_tokens_mask=marks,
                                                return_dict=True, **options)
        except Exception as error:
            raise SystemExit(f"{name}, {title}: {error}")
        if options:
            case["variables"] = options
        case["ids"] = got["input_ids"]
        if marks:
            case["mask"] = got["assistant_masks"]
        cases.append(case)
    return {"family": name, "tokenizer": table, "special": special, "added": added, "roles": roles, "cases": cases}


def main():
    families = [encode(name, *family) for name, family in FAMILIES.items()]
    families += [encode(name, *FAMILIES[name], "families/" + table) for name, table in OVER]
    lines = [json.dumps(family, ensure_ascii=False, separators=(",", ":")) for family in families]
    with open(os.path.join(HERE, "cases.jsonl"), "w") as file:
        file.write("\n".join(lines) + "\n")


main()
