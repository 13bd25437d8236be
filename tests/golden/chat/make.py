#!/usr/bin/env python3
"""Conversations as transformers (5.x) lays them out and encodes them: cases.json.

    python3 -m venv /tmp/chat && /tmp/chat/bin/pip install transformers && /tmp/chat/bin/python tests/golden/chat/make.py

The templates are short ones of our own that write what those of the families write; the tokenizer is
tests/golden/tokenizer/qwen2 with the special tokens of each case behind it."""
import json, os
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
EACH = "{% for m in messages %}"


def mistral_3(opens, space, place):
    """The system message in the question for which `place` is true."""
    return ("{% set system = messages[0].content + '\\n\\n' if messages[0].role == 'system' else '' %}"
            "{% set rest = messages[1:] if system else messages %}{% set users = rest | selectattr('role', 'equalto', 'user') | list %}"
            "{{ bos_token }}{% for m in rest %}{% if m.role == 'user' %}{{ '" + opens + "' + (system if " + place + " else '') + m.content + '[/INST]' }}"
            "{% else %}{{ '" + space + "' + m.content + '</s>' }}{% endif %}{% endfor %}")


CASES = [
    ("ChatML", ["<|im_start|>", "<|im_end|>"], None,
     EACH + "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"),
    ("Llama-3", ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], "<|begin_of_text|>",
     "{{ bos_token }}" + EACH + "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}"
     "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"),
    ("Gemma", ["<bos>", "<start_of_turn>", "<end_of_turn>"], "<bos>",
     "{{ bos_token }}{% set ns = namespace(before='') %}" + EACH +
     "{% if m.role == 'system' %}{% set ns.before = m.content + '\\n\\n' %}{% else %}"
     "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + (ns.before + m.content) | trim + '<end_of_turn>\\n' }}"
     "{% set ns.before = '' %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"),
    ("Phi-3", ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"], None,
     EACH + "{% if m.role == 'system' %}{{ '<|system|>\\n' + m.content + '<|end|>\\n' }}{% elif m.role == 'user' %}"
     "{{ '<|user|>\\n' + m.content + '<|end|>\\n' }}{% else %}{{ '<|assistant|>\\n' + m.content + '<|end|>\\n' }}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"),
    ("Phi-4", ["<|im_start|>", "<|im_sep|>", "<|im_end|>"], None,
     EACH + "{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"),
    ("DeepSeek", ["<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"],
     "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
     "{{ bos_token }}" + EACH + "{% if m.role == 'system' %}{{ m.content }}{% elif m.role == 'user' %}{{ '<\uff5cUser\uff5c>' + m.content }}"
     "{% else %}{{ '<\uff5cAssistant\uff5c>' + m.content + '<\uff5cend\u2581of\u2581sentence\uff5c>' }}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<\uff5cAssistant\uff5c>' }}{% endif %}"),
    ("Mistral", ["<s>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[INST]", "[/INST]", "</s>"], "<s>",
     "{{ bos_token }}" + EACH + "{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}"
     "{% elif m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}{% else %}{{ m.content + '</s>' }}{% endif %}{% endfor %}"),
    ("Mistral V7", ["<s>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[INST]", "[/INST]", "</s>"], "<s>",
     "{{ bos_token }}" + EACH + "{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT] ' + m.content + '[/SYSTEM_PROMPT]' }}"
     "{% elif m.role == 'user' %}{{ '[INST] ' + m.content + '[/INST]' }}{% else %}{{ ' ' + m.content + '</s>' }}{% endif %}{% endfor %}"),
    ("Mistral V3", ["<s>", "[INST]", "[/INST]", "</s>"], "<s>", mistral_3("[INST] ", " ", "(m == users[-1])")),
    ("Mistral V3, first", ["<s>", "[INST]", "[/INST]", "</s>"], "<s>", mistral_3("[INST] ", " ", "loop.first")),
    ("Mistral V3 of Tekken", ["<s>", "[INST]", "[/INST]", "</s>"], "<s>", mistral_3("[INST]", "", "(m == users[-1])")),
    ("Mistral V3 of Tekken, first", ["<s>", "[INST]", "[/INST]", "</s>"], "<s>", mistral_3("[INST]", "", "loop.first")),
    ("Mistral V1", ["<s>", "</s>"], "<s>",
     "{% set system = messages[0].content + '\\n\\n' if messages[0].role == 'system' else '' %}"
     "{% set rest = messages[1:] if system else messages %}{{ bos_token }}{% for m in rest %}{% if m.role == 'user' %}"
     "{{ ' [INST] ' + (system if loop.first else '') + m.content + ' [/INST]' }}{% else %}{{ ' ' + m.content + '</s>' }}{% endif %}{% endfor %}"),
    ("ERNIE-4.5", ["<|begin_of_sentence|>", "<|end_of_sentence|>"], "<|begin_of_sentence|>",
     "{{ bos_token }}" + EACH + "{% if m.role == 'system' %}{{ m.content + '\\n' }}{% elif m.role == 'user' %}"
     "{{ 'User: ' + m.content + '\\n' }}{% else %}{{ 'Assistant: ' + m.content + '<|end_of_sentence|>' }}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %}"),
]
CONVERSATIONS = [
    [("user", "What is red?"), ("assistant", "An apple is."), ("user", " And  blue?\n"), ("assistant", "The sky, 3 days of 7.")],
    [("system", "Be brief."), ("user", "Wie geht's?"), ("assistant", "Gut.")],
    [("system", "Be brief."), ("user", "Ja?"), ("assistant", "Nein."), ("user", "Doch!"), ("assistant", "Ach.")],
]


def main():
    out = []
    for name, specials, bos, template in CASES:
        core = Tokenizer.from_file(os.path.join(HERE, "../tokenizer/qwen2/tokenizer.json"))
        core.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token=bos, chat_template=template)
        for turns in CONVERSATIONS:
            messages = [{"role": r, "content": c} for r, c in turns]
            encode = lambda m, g: tokenizer.apply_chat_template(m, add_generation_prompt=g, return_dict=False)
            whole = encode(messages, False)
            out.append({"layout": name, "specials": specials, "template": template, "messages": messages,
                        "ids": whole, "prompt_ids": encode(messages[:-1], True)})
    with open(os.path.join(HERE, "cases.json"), "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(c) for c in out) + "\n]\n")


main()
