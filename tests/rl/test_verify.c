/* Verifiers by tables of cases, prompts from files, and misbehaving reward programs: in every case
 * the caller gets answers or a message within the time limit, and no process is left behind. */
#define _GNU_SOURCE /* memmem */
#include "core/settings.h"
#include "rl/grader.h"
#include "rl/program.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/tier.h"

/* ---- Verifiers ---- */

struct verify_case {
    enum verifier verifier;
    const char *truth, *answer;
    double score;
};
static const struct verify_case cases[] = {
    {VERIFY_EXACT, "0123456", "0123456", 1},
    {VERIFY_EXACT, "0123456", " 0123456\n", 1},
    {VERIFY_EXACT, "0123456", "0123465", 0},
    {VERIFY_EXACT, "0123456", "0123456 ", 1},
    {VERIFY_EXACT, "0123456", "x0123456", 0},
    {VERIFY_EXACT, "0123456", "", 0},
    {VERIFY_EXACT, "7", "<think>8?</think>7", 1},
    {VERIFY_EXACT, "7", "<think>7</think>8", 0},
    /* gsm8k */
    {VERIFY_GSM8K, "72", "so it is\n#### 72", 1},
    {VERIFY_GSM8K, "72", "#### 71\n#### 72", 1},
    {VERIFY_GSM8K, "72", "#### 72\n#### 71", 0},
    {VERIFY_GSM8K, "72", "72", 0},
    {VERIFY_GSM8K, "1234", "#### 1,234", 1},
    {VERIFY_GSM8K, "-3", "#### -3", 1},
    {VERIFY_GSM8K, "5", "#### 5.0", 1},
    {VERIFY_GSM8K, "5", "#### $5", 1},
    {VERIFY_GSM8K, "5", "#### five", 0},
    {VERIFY_GSM8K, "5", "#### 5\n#### none", 1},
    {VERIFY_GSM8K, "5", "#### 5.", 1},
    {VERIFY_GSM8K, "5", "####", 0},
    {VERIFY_GSM8K, "5", "#### -", 0},
    {VERIFY_GSM8K, "2000000", "#### 2000001", 0},
    {VERIFY_GSM8K, "1,234", "#### 1234", 1},
    {VERIFY_GSM8K, "$1,234", "#### 1234", 1},
    {VERIFY_GSM8K, "1234", "#### 12,34", 1}, /* like verl, which removes all commas */
    /* math */
    {VERIFY_MATH, "1/2", "hence \\boxed{\\frac{1}{2}}", 1},
    {VERIFY_MATH, "0.5", "\\boxed{\\dfrac{1}{2}}", 1},
    {VERIFY_MATH, "-0.5", "\\boxed{-\\frac{1}{2}}", 1},
    {VERIFY_MATH, "0.5", "\\boxed{\\frac{1}{0}}", 0},
    {VERIFY_MATH, "\\frac{1}{2}", "\\boxed{50\\%}", 1},
    {VERIFY_MATH, "x^2+1", "\\boxed{ x^2 + 1 }", 1},
    {VERIFY_MATH, "(1,2)", "\\boxed{\\left(1, 2\\right)}", 1},
    {VERIFY_MATH, "12", "\\boxed{11} no, \\boxed{12}", 1},
    {VERIFY_MATH, "12", "\\boxed{12", 1}, /* never closed: the last number counts */
    {VERIFY_MATH, "12", "\\boxed{{12}}", 1},
    {VERIFY_MATH, "\\boxed{12}", "12", 1},
    {VERIFY_MATH, "3,000", "it is 3000.", 1},
    {VERIFY_MATH, "7", "of 9 there are 7", 1},
    {VERIFY_MATH, "7", "of 7 there are 9", 0},
    {VERIFY_MATH, "7", "nothing", 0},
    {VERIFY_MATH, "7", "", 0},
    {VERIFY_MATH, "cat", "\\boxed{\\text{cat}}", 1},
    {VERIFY_MATH, "1e400", "1e400", 0},
    {VERIFY_MATH, "7", "\\boxed{}", 0},
    {VERIFY_MATH, "7", "\\boxed{\\frac{14}", 0},
    {VERIFY_MATH, "1000000", "\\boxed{1000001}", 0},
    {VERIFY_MATH, "1000000", "\\boxed{1000001.0}", 0},
    {VERIFY_MATH, "1000000", "\\boxed{1000000.5}", 0},
    {VERIFY_MATH, "1000000", "\\boxed{1000000.0}", 1},
    {VERIFY_MATH, "1234567.5", "\\boxed{1234568.4}", 0},
    {VERIFY_MATH, "123456789012345678901", "\\boxed{123456789012345678902}", 0},
    {VERIFY_MATH, "007", "\\boxed{7}", 1},
    {VERIFY_MATH, "0", "\\boxed{-0}", 1},
    {VERIFY_MATH, "1/3", "\\boxed{0.333333}", 1},
    {VERIFY_MATH, "1/3", "\\boxed{0.3333}", 0},
    {VERIFY_MATH, "3", "\\boxed{\\frac{0.3}{0.1}}", 1},
    {VERIFY_MATH, "1e3", "\\boxed{1000}", 1},
    {VERIFY_MATH, "1,2", "\\boxed{12}", 0},
    {VERIFY_MATH, "345", "\\boxed{3, 4, 5}", 0},
    {VERIFY_MATH, "1234", "\\boxed{1, 234}", 0},
    {VERIFY_MATH, "1234567", "\\boxed{1,234,567}", 1},
    {VERIFY_MATH, "12345", "\\boxed{1,2345}", 0},
    {VERIFY_MATH, "123456", "\\boxed{1,234,56}", 0},
    {VERIFY_MATH, "1234.5", "\\boxed{1,234.5}", 1},
    {VERIFY_MATH, "123", "\\boxed{0,123}", 0},
    {VERIFY_MATH, "1234", "\\boxed{1234,000}", 0},
    {VERIFY_MATH, "10000", "\\boxed{10\\,000}", 1},
    {VERIFY_MATH, "10000", "\\boxed{10,\\!000}", 1},
    {VERIFY_MATH, "10000", "\\boxed{10{,}000}", 1},
    {VERIFY_MATH, "34", "\\boxed{3 4}", 0},
    {VERIFY_MATH, "-7", "the result of 10-7 is", 0},
    {VERIFY_MATH, "-7", "it is -7", 1},
    {VERIFY_MATH, "7", "it is -7", 0},
    {VERIFY_MATH, "-7",
     "it is \xe2\x88\x92"
     "7",
     1},
    {VERIFY_MATH, "7",
     "it is \xe2\x88\x92"
     "7",
     0},
    {VERIFY_MATH, "-7", "f(x)-7", 0},
    {VERIFY_MATH, "-7", "x=-7", 1},
    {VERIFY_MATH, "-7", "\xe6\x98\xaf-7", 1},
    {VERIFY_MATH, "-7",
     "\\boxed{\xe2\x88\x92"
     "7}",
     1},
    {VERIFY_MATH, "10", "\\boxed{10\\text{ cm}}", 1},
    {VERIFY_MATH, "10", "\\boxed{10\\ \\text{cm}}", 1},
    {VERIFY_MATH, "10", "\\boxed{10~\\mathrm{cm}}", 1},
    {VERIFY_MATH, "10", "\\boxed{10\\text{ cm}^2}", 1},
    {VERIFY_MATH, "10\\text{ cm}", "\\boxed{10}", 1},
    {VERIFY_MATH, "10 cm", "\\boxed{10\\text{ cm}}", 1},
    {VERIFY_MATH, "10\\text{ cm}", "\\boxed{10\\text{ m}}", 0},
    {VERIFY_MATH, "10", "\\boxed{10\\text{ cm}+3}", 0},
    {VERIFY_MATH, "10", "\\boxed{10\\text{ cm}^2+3}", 0},
    {VERIFY_MATH, "10", "\\boxed{11\\text{ cm}}", 0},
    {VERIFY_MATH, "3", "\\boxed{3\\text{ million}}", 0},
    {VERIFY_MATH, "2", "\\boxed{2\\mathrm{i}}", 0},
    {VERIFY_MATH, "5", "\\boxed{5\\text{ or }6}", 0},
    {VERIFY_MATH, "10", "\\boxed{10x}", 0},
    {VERIFY_MATH, "10", "\\boxed{10\\text{ 5}}", 0},
    {VERIFY_MATH, "10", "\\boxed{10\\text{ }}", 1},
    {VERIFY_MATH, "45", "\\boxed{45^\\circ}", 1},
    {VERIFY_MATH, "45", "\\boxed{45^{\\circ}}", 1},
    {VERIFY_MATH, "45", "\\boxed{45\xc2\xb0}", 1},
    {VERIFY_MATH, "45^\\circ", "\\boxed{45}", 1},
    {VERIFY_MATH, "45", "\\boxed{46^\\circ}", 0},
    {VERIFY_MATH, "45", "\\boxed{\\sin 45^\\circ}", 0},
    {VERIFY_MATH, "25", "\\boxed{25\\%}", 1},
    {VERIFY_MATH, "0.25", "\\boxed{25\\%}", 1},
    {VERIFY_MATH, "25\\%", "\\boxed{25}", 1},
    {VERIFY_MATH, "25\\%", "\\boxed{0.25\\%}", 0},
    {VERIFY_MATH, "25", "\\boxed{2500\\%}", 1},
    {VERIFY_MATH, "2500", "\\boxed{25\\%}", 0},
    {VERIFY_MATH, "1/2", "it is 50%", 1},
    {VERIFY_MATH, "1/2", "it is 50\\%.", 1},
    {VERIFY_MATH, "1/2", "it is 5%", 0},
    {VERIFY_MATH, "\\frac{1}{2}", "\\boxed{\\frac12}", 1},
    {VERIFY_MATH, "0.5", "\\boxed{\\frac12}", 1},
    {VERIFY_MATH, "0.5", "\\boxed{\\frac1{2}}", 1},
    {VERIFY_MATH, "0.5", "\\boxed{\\tfrac{1}2}", 1},
    {VERIFY_MATH, "\\frac{\\pi}{2}", "\\boxed{\\frac{\\pi}2}", 1},
    {VERIFY_MATH, "\\sqrt{3}", "\\boxed{\\sqrt3}", 1},
    {VERIFY_MATH, "1/23", "\\boxed{\\frac123}", 0},
    {VERIFY_MATH, "0.5", "\\boxed{\\frac13}", 0},
    {VERIFY_MATH, "12", "\\boxed{\\frac12}", 0},
    {VERIFY_MATH, "\\frac{3}{2}", "\\boxed{1\\frac{1}{2}}", 1},
    {VERIFY_MATH, "-1.5", "\\boxed{-1\\frac12}", 1},
    {VERIFY_MATH, "3/2", "\\boxed{1 1/2}", 1},
    {VERIFY_MATH, "11/2", "\\boxed{1 1/2}", 0},
    {VERIFY_MATH, "\\frac{11}{2}", "\\boxed{1\\frac{1}{2}}", 0},
    {VERIFY_MATH, "7/2", "\\boxed{1\\frac{5}{2}}", 0},
    {VERIFY_MATH, "1/2", "\\boxed{1\\frac{1}{2}}", 0},
    {VERIFY_MATH, "5", "\\boxed{x=5}", 1},
    {VERIFY_MATH, "x=5", "\\boxed{5}", 1},
    {VERIFY_MATH, "x=5", "\\boxed{x = 5}", 1},
    {VERIFY_MATH, "x=5", "\\boxed{y=5}", 0},
    {VERIFY_MATH, "5", "\\boxed{x=6}", 0},
    {VERIFY_MATH, "5", "\\boxed{x=y=5}", 0},
    {VERIFY_MATH, "10", "\\boxed{x=10\\text{ cm}}", 1},
    {VERIFY_MATH, "B", "\\boxed{\\text{(B)}}", 1},
    {VERIFY_MATH, "(B)", "\\boxed{B}", 1},
    {VERIFY_MATH, "B", "\\boxed{\\text{(C)}}", 0},
    {VERIFY_MATH, "5", "\\boxed{(5)}", 1},
    {VERIFY_MATH, "12", "x...12", 1},
    {VERIFY_MATH, "12", "x...13", 0},
    {VERIFY_MATH, "0.5", "it is .5", 1},
    {VERIFY_MATH, "12", "the end.12", 1},
    {VERIFY_MATH, "\\rightarrow", "\\boxed{arrow}", 0},
    {VERIFY_MATH, "a\\leftarrow b", "\\boxed{a\\leftarrow b}", 1},
    {VERIFY_MATH, "a arrow b", "\\boxed{a\\leftarrow b}", 0},
    {VERIFY_MATH, "\\{1\\}", "\\boxed{\\left\\{1\\right\\}}", 1},
    {VERIFY_MATH, "\\{1\\}", "\\boxed{1}", 0},
    {VERIFY_MATH, "7", "\\boxed{\\text{7}", 1},
    {VERIFY_MATH, "7", "\\boxed{\\}", 0},
    {VERIFY_MATH, "7", "\\boxed{\\frac}", 0},
    {VERIFY_MATH, "7", "\\boxed{\\text}", 0},
    {VERIFY_MATH, "7", "\\boxed{%}", 0},
    {VERIFY_MATH, "7", "\\boxed{^\\circ}", 0},
    {VERIFY_MATH, "7", "\\boxed{}}7", 0},
    /* formulas, lists, units, "Answer:", reasoning that is cut off, several letters */
    {VERIFY_MATH, "2.5", "\\boxed{2\\frac{1}{2}}", 1},
    {VERIFY_MATH, "2\\frac23", "\\boxed{2 2/3}", 1},
    {VERIFY_MATH, "8/3", "\\boxed{2 2/3}", 1},
    {VERIFY_MATH, "\\frac{1}{2004!}", "\\boxed{\\frac{1}{2004!}}", 1},
    {VERIFY_MATH, "\\pm 2021", "\\boxed{\\pm2021}", 1},
    {VERIFY_MATH, "\\pm 2021", "\\boxed{2021,-2021}", 1},
    {VERIFY_MATH, "\\pm 2021", "\\boxed{-2021, 2021}", 1},
    {VERIFY_MATH, "2021", "\\boxed{\\pm 2021}", 0},
    {VERIFY_MATH, "1-\\frac{1}{e}", "\\boxed{1-\\frac{1}{\\mathrm{e}}}", 1},
    {VERIFY_MATH, "1 - \\frac{1}{\\mathrm{e}}", "\\boxed{1-e^{-1}}", 1},
    {VERIFY_MATH, "1-\\frac1e", "\\boxed{\\frac{e-1}{e}}", 1},
    {VERIFY_MATH, "(1,\\frac{9}{2})", "\\boxed{(1,4.6)}", 0},
    {VERIFY_MATH, "(1,\\frac92)", "\\boxed{(4.5,1)}", 0},
    {VERIFY_MATH, "(1,2)", "\\boxed{[1,2]}", 0},
    {VERIFY_MATH, "(1,2)", "\\boxed{1,2}", 0},
    {VERIFY_MATH, "\\{1,2\\}", "\\boxed{\\{2,1\\}}", 1},
    {VERIFY_MATH, "\\{1,2\\}", "\\boxed{\\{2,1,1\\}}", 0},
    {VERIFY_MATH, "\\{1,2,3\\}", "\\boxed{1, 2, 3}", 1},
    {VERIFY_MATH, "1,2", "\\boxed{2,1}", 1},
    {VERIFY_MATH, "1,2", "\\boxed{x=1, x=2}", 1},
    {VERIFY_MATH, "x=1,x=2", "\\boxed{2 \\text{ or } 1}", 1},
    {VERIFY_MATH, "1, 2", "\\boxed{2 and 1}", 1},
    {VERIFY_MATH, "\\frac{x+2}{7}", "\\boxed{\\frac{x}{7}+\\frac{2}{7}}", 1},
    {VERIFY_MATH, "\\frac{x+2}{7}", "\\boxed{\\frac{x}{7}+\\frac{3}{7}}", 0},
    {VERIFY_MATH, "x^2-1", "\\boxed{(x-1)(x+1)}", 1},
    {VERIFY_MATH, "x^2-1", "\\boxed{(x-1)^2}", 0},
    {VERIFY_MATH, "D=(0,1)", "\\boxed{(0,1)}", 1},
    {VERIFY_MATH, "D=(0,1)", "\\boxed{D=(0,1]}", 0},
    {VERIFY_MATH, "(0,1)", "\\boxed{D=(0,1)}", 1},
    {VERIFY_MATH, "(0,1)", "\\boxed{x\\in(0,1)}", 1},
    {VERIFY_MATH, "3", "\\boxed{3 days}", 1},
    {VERIFY_MATH, "3", "\\boxed{3\\text{ hours}}", 1},
    {VERIFY_MATH, "3 days", "\\boxed{3 hours}", 0},
    {VERIFY_MATH, "3\\text{ days}", "\\boxed{3 day}", 1},
    {VERIFY_MATH, "60", "\\boxed{60 km/h}", 1},
    {VERIFY_MATH, "60", "\\boxed{60\\text{ km/h}}", 1},
    {VERIFY_MATH, "60", "\\boxed{60\\ \\mathrm{km}/\\mathrm{h}}", 1},
    {VERIFY_MATH, "12", "\\boxed{12 square units}", 1},
    {VERIFY_MATH, "12", "\\boxed{12 cm^2}", 1},
    {VERIFY_MATH, "12", "\\boxed{12\\,\\mathrm{cm}^{2}}", 1},
    {VERIFY_MATH, "12", "\\boxed{12cm}", 1},
    {VERIFY_MATH, "12", "\\boxed{12 m}", 1},
    {VERIFY_MATH, "12", "\\boxed{12 x}", 0},
    {VERIFY_MATH, "12", "\\boxed{12 million}", 0},
    {VERIFY_MATH, "12", "\\boxed{12 and a half}", 0},
    {VERIFY_MATH, "12\\pi", "\\boxed{12\\pi \\text{ cm}^2}", 1},
    {VERIFY_MATH, "12\\pi", "\\boxed{12\\pi cm}", 1},
    {VERIFY_MATH, "9.8", "\\boxed{9.8 m/s^2}", 1},
    {VERIFY_MATH, "\\frac{\\sqrt{3}}{2}", "\\boxed{\\frac{1}{2}\\sqrt{3}}", 1},
    {VERIFY_MATH, "\\frac{\\sqrt3}{2}", "\\boxed{\\sqrt{3}/2}", 1},
    {VERIFY_MATH, "\\frac{\\sqrt3}{3}", "\\boxed{\\frac{1}{\\sqrt3}}", 1},
    {VERIFY_MATH, "\\frac{\\sqrt3}{2}", "\\boxed{\\frac{\\sqrt2}{2}}", 0},
    {VERIFY_MATH, "\\sqrt{8}", "\\boxed{2\\sqrt{2}}", 1},
    {VERIFY_MATH, "\\sqrt[3]{8}", "\\boxed{2}", 1},
    {VERIFY_MATH, "2\\sqrt{3}", "\\boxed{2\\times\\sqrt{3}}", 1},
    {VERIFY_MATH, "2\\sqrt3", "\\boxed{2*sqrt(3)}", 1},
    {VERIFY_MATH, "2\\sqrt3", "\\boxed{3\\sqrt2}", 0},
    {VERIFY_MATH, "3\\times10^8", "\\boxed{3e8}", 1},
    {VERIFY_MATH, "3\\times 10^{8}", "\\boxed{300000000}", 1},
    {VERIFY_MATH, "3 \\cdot 10^{-4}", "\\boxed{0.0003}", 1},
    {VERIFY_MATH, "3\\times10^8", "\\boxed{3\\times10^9}", 0},
    {VERIFY_MATH, "2^{10}", "\\boxed{1024}", 1},
    {VERIFY_MATH, "2^{100}", "\\boxed{2^{100}+1}", 0},
    {VERIFY_MATH, "10^{20}", "\\boxed{100000000000000000000}", 1},
    {VERIFY_MATH, "10^{20}", "\\boxed{100000000000000000001}", 0},
    {VERIFY_MATH, "\\frac12", "\\boxed{0.5}", 1},
    {VERIFY_MATH, "\\frac{3}{4}", "\\boxed{\\frac{6}{8}}", 1},
    {VERIFY_MATH, "\\frac{1}{6}", "\\boxed{\\frac{1}{2}-\\frac{1}{3}}", 1},
    {VERIFY_MATH, "\\frac56", "\\boxed{\\frac12+\\frac13}", 1},
    {VERIFY_MATH, "\\frac56", "\\boxed{\\frac12+\\frac14}", 0},
    {VERIFY_MATH, "x<5", "\\boxed{5>x}", 1},
    {VERIFY_MATH, "x\\le5", "\\boxed{x \\leq 5}", 1},
    {VERIFY_MATH, "x<5", "\\boxed{x>5}", 0},
    {VERIFY_MATH, "y=2x+3", "\\boxed{2x+3}", 1},
    {VERIFY_MATH, "y=2x+3", "\\boxed{y=3+2x}", 1},
    {VERIFY_MATH, "y=2x+3", "\\boxed{y=2x-3}", 0},
    {VERIFY_MATH, "(-\\infty,2)\\cup(3,\\infty)", "\\boxed{(3,\\infty)\\cup(-\\infty,2)}", 1},
    {VERIFY_MATH, "(-\\infty,2)\\cup(3,\\infty)", "\\boxed{(-\\infty, 2) \\cup [3, \\infty)}", 0},
    {VERIFY_MATH, "act", "\\boxed{cat}", 0},
    {VERIFY_MATH, "\\text{east}", "\\boxed{\\text{seat}}", 0},
    {VERIFY_MATH, "\\text{no}", "\\boxed{no}", 1},
    {VERIFY_MATH, "\\frac{1}{0}", "\\boxed{0}", 0},
    {VERIFY_MATH, "0", "\\boxed{\\frac10}", 0},
    {VERIFY_MATH, "5", "\\boxed{\\frac{5}{0}}", 0},
    {VERIFY_MATH, "\\frac{2}{3}", "\\boxed{0.6667}", 0},
    {VERIFY_MATH, "\\pi", "\\boxed{3.14}", 0},
    {VERIFY_MATH, "\\pi", "\\boxed{3.14159265}", 1},
    {VERIFY_MATH, "90^\\circ", "\\boxed{90}", 1},
    {VERIFY_MATH, "90", "\\boxed{90 degrees}", 1},
    {VERIFY_MATH, "\\$10", "\\boxed{10 dollars}", 1},
    {VERIFY_MATH, "10", "\\boxed{\\$10.00}", 1},
    {VERIFY_MATH, "1,234", "\\boxed{1234}", 1},
    {VERIFY_MATH, "\\sin x", "\\boxed{\\sin(x)}", 1},
    {VERIFY_MATH, "\\log_2 3", "\\boxed{\\log_3 2}", 0},
    {VERIFY_MATH, "\\ln 2", "\\boxed{\\log 2}", 1},
    {VERIFY_MATH, "\\frac{\\pi}{4}", "\\boxed{\\pi/4}", 1},
    {VERIFY_MATH, "3+4i", "\\boxed{4i+3}", 1},
    {VERIFY_MATH, "3+4i", "\\boxed{3-4i}", 0},
    {VERIFY_MATH, "6!", "\\boxed{720}", 1},
    {VERIFY_MATH, "a_1+a_2", "\\boxed{a_2+a_1}", 1},
    {VERIFY_MATH, "a_1", "\\boxed{a_2}", 0},
    {VERIFY_MATH, "\\frac{x}{y}z", "\\boxed{\\frac{xz}{y}}", 1},
    {VERIFY_MATH, "13", "Thinking.\nAnswer: 13\nThis was checked with 5 cases.", 1},
    {VERIFY_MATH, "13", "Answer: 12\nBut 13 is near", 0},
    {VERIFY_MATH, "13", "Answer: $13$.", 1},
    {VERIFY_MATH, "13", "**Answer:** 13\n\nDone 7", 1},
    {VERIFY_MATH, "13", "answer: 13", 1},
    {VERIFY_MATH, "13", "Answer:\n13", 1},
    {VERIFY_MATH, "13", "Answer: 13 apples are left.\n2", 1},
    {VERIFY_MATH, "13", "Answer: 13, 14", 0},
    {VERIFY_MATH, "14", "Answer: 13, 14", 0},
    {VERIFY_MATH, "14", "Answer: 13 or 14", 0},
    {VERIFY_MATH, "\\frac34", "Answer: $\\frac{3}{4}$\n1", 1},
    {VERIFY_MATH, "13", "Answer: 12\nAnswer: 13", 1},
    {VERIFY_MATH, "13", "Answer: \\boxed{13}", 1},
    {VERIFY_MATH, "13", "Final Answer: 13", 1},
    {VERIFY_MATH, "42", "<think>\\boxed{42}", 0},
    {VERIFY_MATH, "42", "a</think>\\boxed{42}", 1},
    {VERIFY_MATH, "42", "<think>a</think>\\boxed{42}<think>", 0},
    {VERIFY_GSM8K, "42", "<think>#### 42", 0},
    {VERIFY_GSM8K, "42", "#### 42\n#### 43", 0},
    {VERIFY_GSM8K, "42", "####42", 1},
    {VERIFY_GSM8K, "-5", "#### -$5", 1},
    {VERIFY_GSM8K, "5", "#### \\$5.00", 1},
    {VERIFY_GSM8K, "5", "#### **5**", 1},
    {VERIFY_GSM8K, "5", "#### 5 dollars", 1},
    {VERIFY_GSM8K, "1234", "#### $1,234.", 1},
    {VERIFY_GSM8K, "1234", "#### $1,235", 0},
    {VERIFY_GSM8K, "18", "#### 18.5", 0},
    {VERIFY_GSM8K, "5", "#### x5", 0},
    {VERIFY_CHOICE, "B", "A and B", 0},
    {VERIFY_CHOICE, "B", "<think>B", 0},
    {VERIFY_CHOICE, "B", "B.", 1},
    {VERIFY_CHOICE, "B", "\\boxed{B, C}", 0},
    {VERIFY_CHOICE, "B", "The answer is (B).", 1},
    {VERIFY_CHOICE, "B", "A or B", 0},
    {VERIFY_CHOICE, "B", "B or C", 0},
    {VERIFY_CHOICE, "B", "B, C", 0},
    {VERIFY_CHOICE, "B", "A/B", 0},
    {VERIFY_CHOICE, "B", "(A)(B)(C)(D)", 0},
    {VERIFY_CHOICE, "D", "A, B, C, D", 0},
    {VERIFY_CHOICE, "D", "(A), (B), (C), (D)", 0},
    {VERIFY_CHOICE, "A", "A, B, C, D", 0},
    {VERIFY_CHOICE, "B", "The answer is B or C", 0},
    {VERIFY_CHOICE, "B", "The answer is B, C or D.", 0},
    {VERIFY_CHOICE, "B", "B. C is wrong because it is too large.", 1},
    {VERIFY_CHOICE, "B", "The answer is B, not C", 1},
    {VERIFY_CHOICE, "B", "The answer is A. Wait, the answer is B.", 1},
    {VERIFY_CHOICE, "A", "A.\nB.\nC.\nD.", 0},
    {VERIFY_CHOICE, "D", "A B C D", 0},
    {VERIFY_CHOICE, "A", "ABCD", 0},
    {VERIFY_CHOICE, "D", "The answer is A, B, C, D", 0},
    {VERIFY_CHOICE, "A", "The answer is A, B, C, D", 0},
    {VERIFY_CHOICE, "B", "The answer is A and B", 0},
    {VERIFY_CHOICE, "A", "The answer is A and B", 0},
    {VERIFY_CHOICE, "A", "The answer is A and not B", 1},
    {VERIFY_CHOICE, "B", "Of A, B, C and D, the right one is B.", 1},
    {VERIFY_REGEX, ".*", "<think>a", 0},
    {VERIFY_EXACT, "<think>7", "<think>7", 0},
    {VERIFY_MATH, "3", "\\boxed{\\text{3 days}}", 1},
    {VERIFY_MATH, "42", "\\boxed{\\textbf{42}}", 1},
    {VERIFY_MATH, "(1,2)", "\\boxed{\\text{(1, 2)}}", 1},
    {VERIFY_MATH, "3", "\\boxed{3~\\text{days}}", 1},
    {VERIFY_MATH, "3", "\\boxed{\\mathrm{3\\,days}}", 1},
    {VERIFY_MATH, "3", "\\boxed{3 days.}", 1},
    {VERIFY_MATH, "3", "Answer: 3 days", 1},
    {VERIFY_MATH, "3", "Answer: $3$ days", 1},
    {VERIFY_MATH, "3\\%", "\\boxed{3 \\%}", 1},
    {VERIFY_MATH, "3", "\\boxed{3\\ \\text{cm}^3}", 1},
    {VERIFY_MATH, "0.001", "\\boxed{10^{-3}}", 1},
    {VERIFY_MATH, "1500", "\\boxed{1.5 \\times 10^3}", 1},
    {VERIFY_MATH, "1500", "\\boxed{1.5\\cdot10^{3}}", 1},
    {VERIFY_MATH, "1.5 \\cdot 10^3", "\\boxed{1.5 \\times 10^{3}}", 1},
    {VERIFY_MATH, "1500", "\\boxed{1.5*10^3}", 1},
    {VERIFY_MATH, "1500", "\\boxed{1.5 x 10^3}", 0},
    {VERIFY_MATH, "\\frac{a+b}{c}", "\\boxed{\\frac{a}{c}+\\frac{b}{c}}", 1},
    {VERIFY_MATH, "\\frac{a+b}{c}", "\\boxed{\\frac{a}{b}+\\frac{b}{c}}", 0},
    {VERIFY_MATH, "\\frac{x+2}{7}", "\\boxed{\\dfrac{x+2}7}", 1},
    {VERIFY_MATH, "\\frac{x+2}{7}", "\\boxed{(x+2)/7}", 1},
    {VERIFY_MATH, "\\frac{x+2}{7}", "\\boxed{\\frac{1}{7}(x+2)}", 1},
    {VERIFY_MATH, "((1,2),(3,4))", "\\boxed{((1,2),(3,4))}", 1},
    {VERIFY_MATH, "(1,2),(3,4)", "\\boxed{(3,4),(1,2)}", 1},
    {VERIFY_MATH, "(1,2), (3,4)", "\\boxed{(3, 4) and (1, 2)}", 1},
    {VERIFY_MATH, "(1,2),(3,4)", "\\boxed{(2,1),(4,3)}", 0},
    {VERIFY_MATH, "(\\frac12,3)", "\\boxed{\\left( 0.5, 3\\right)}", 1},
    {VERIFY_MATH, "\\{1,2\\}", "\\boxed{\\left\\{2, 1\\right\\}}", 1},
    {VERIFY_MATH, "\\{1,2\\}", "\\boxed{\\lbrace 1,2\\rbrace}", 1},
    {VERIFY_MATH, "(1,2)", "\\boxed{\\big(1,2\\big)}", 1},
    {VERIFY_MATH, "1234", "\\boxed{1{,}234}", 1},
    {VERIFY_MATH, "\\{1,2\\}", "\\boxed{x \\in \\{1,2\\}}", 1},
    {VERIFY_MATH, "x+1", "\\boxed{f(x)=x+1}", 1},
    {VERIFY_MATH, "f(x)=x+1", "\\boxed{1+x}", 1},
    {VERIFY_MATH, "5", "\\boxed{x_1=5}", 1},
    {VERIFY_MATH, "5", "\\boxed{f(x)=6}", 0},
    {VERIFY_MATH, "\\{0.5,2\\}", "\\boxed{\\{\\frac12,2\\}}", 1},
    {VERIFY_MATH, "[0,1)", "\\boxed{[0,1]}", 0},
    {VERIFY_MATH, "[0,1)", "\\boxed{[0, 1)}", 1},
    {VERIFY_MATH, "(3,\\infty)", "\\boxed{(3,+\\infty)}", 1},
    {VERIFY_MATH, "(-\\infty,3]", "\\boxed{(-\\infty, 3]}", 1},
    {VERIFY_MATH, "2\\sqrt3", "\\boxed{2\\cdot\\sqrt{3}}", 1},
    {VERIFY_MATH, "2\\cdot 3", "\\boxed{6}", 1},
    {VERIFY_MATH, "12", "\\boxed{3\\cdot4}", 1},
    {VERIFY_MATH, "6xy", "\\boxed{2x\\cdot3y}", 1},
    {VERIFY_MATH, "\\frac{3}{4}", "\\boxed{\\frac{3}{4}\\text{ of the cake}}", 1},
    {VERIFY_MATH, "4", "\\boxed{4 apples and 3 pears}", 0},
    {VERIFY_MATH, "4", "\\boxed{4 more}", 1},
    {VERIFY_MATH, "4", "\\boxed{4 to 5}", 0},
    {VERIFY_MATH, "4", "\\boxed{4 dozen}", 0},
    {VERIFY_MATH, "4 hours", "\\boxed{4 h}", 1},
    {VERIFY_MATH, "4 \\text{ m}", "\\boxed{4 \\text{ meters}}", 1},
    {VERIFY_MATH, "4 kg", "\\boxed{4 g}", 0},
    {VERIFY_MATH, "25", "\\boxed{25 square meters}", 1},
    {VERIFY_MATH, "25", "\\boxed{25\\text{ m}^2}", 1},
    {VERIFY_MATH, "25\\pi", "\\boxed{25\\pi}", 1},
    {VERIFY_MATH, "25\\pi", "\\boxed{25}", 0},
    {VERIFY_MATH, "5", "\\boxed{5:00}", 0},
    {VERIFY_MATH, "5:30", "\\boxed{5:30}", 1},
    {VERIFY_MATH, "5:30", "\\boxed{5:30\\text{ p.m.}}", 1},
    {VERIFY_MATH, "\\text{Monday}", "\\boxed{Monday}", 1},
    {VERIFY_MATH, "\\text{Monday}", "\\boxed{\\text{Sunday}}", 0},
    {VERIFY_MATH, "-\\frac12", "\\boxed{\\frac{-1}{2}}", 1},
    {VERIFY_MATH, "-\\frac12", "\\boxed{\\frac{1}{-2}}", 1},
    {VERIFY_MATH, "\\frac{\\sqrt2}{2}", "\\boxed{\\frac{1}{\\sqrt{2}}}", 1},
    {VERIFY_MATH, "\\sqrt{2}", "\\boxed{1.41}", 0},
    {VERIFY_MATH, "\\sqrt2", "\\boxed{1.41421356}", 1},
    {VERIFY_MATH, "x^2+2x+1", "\\boxed{(x+1)^2}", 1},
    {VERIFY_MATH, "2^{n+1}", "\\boxed{2\\cdot2^n}", 1},
    {VERIFY_MATH, "\\log 8", "\\boxed{3\\log 2}", 1},
    {VERIFY_MATH, "e^{2x}", "\\boxed{(e^x)^2}", 1},
    {VERIFY_MATH, "\\tan x", "\\boxed{\\frac{\\sin x}{\\cos x}}", 1},
    {VERIFY_MATH, "\\binom{5}{2}", "\\boxed{10}", 1},
    {VERIFY_MATH, "5!", "\\boxed{120}", 1},
    {VERIFY_MATH, "C(5,2)", "\\boxed{10}", 0},
    {VERIFY_MATH, "\\frac{1}{3}", "\\boxed{0.333}", 0},
    {VERIFY_MATH, "y=3,x=2", "\\boxed{x=2,y=3}", 1},
    {VERIFY_MATH, "x=2,y=3", "\\boxed{x=3,y=2}", 0},
    {VERIFY_MATH, "0", "\\boxed{-0.0}", 1},
    {VERIFY_MATH, "10", "\\boxed{10.0}", 1},
    {VERIFY_MATH, "1/2", "\\boxed{2/4}", 1},
    {VERIFY_MATH, "12", "\\boxed{\\boxed{12}}", 1},
    {VERIFY_MATH, "a", "\\boxed{b}", 0},
    {VERIFY_MATH, "x", "\\boxed{y}", 0},
    {VERIFY_MATH, "\\infty", "\\boxed{-\\infty}", 0},
    {VERIFY_MATH, "\\infty", "\\boxed{\\infty}", 1},
    {VERIFY_MATH, "0", "\\boxed{\\infty}", 0},
    {VERIFY_MATH, "1", "\\boxed{\\infty}", 0},
    {VERIFY_MATH, "i", "\\boxed{-i}", 0},
    {VERIFY_MATH, "2i", "\\boxed{2j}", 0},
    {VERIFY_MATH, "3", "\\boxed{\\pi}", 0},
    {VERIFY_MATH, "3.14", "\\boxed{\\pi}", 0},
    {VERIFY_MATH, "1,2,3", "\\boxed{1,2}", 0},
    {VERIFY_MATH, "1,2,3", "\\boxed{1,2,3,4}", 0},
    {VERIFY_MATH, "7", "\\boxed{6.99999}", 0},
    {VERIFY_MATH, "42", "#### 42", 1},
    {VERIFY_MATH, "42", "#### **42**", 1},
    {VERIFY_MATH, "42", "The answer is $42$.", 1},
    {VERIFY_MATH, "42", "\\fbox{42}", 1},
    {VERIFY_MATH, "42", "\\boxed 42", 1},
    {VERIFY_CHOICE, "B", "B: 42", 1},
    {VERIFY_CHOICE, "B", "The correct answer is **B**.", 1},
    {VERIFY_CHOICE, "B", "**Answer: B**", 1},
    {VERIFY_CHOICE, "B", "\\boxed{\\text{B, C}}", 0},
    {VERIFY_CHOICE, "C", "Either B or C, so C", 1},
    {VERIFY_CHOICE, "C", "Not A or B. The answer is C.", 1},
    {VERIFY_CHOICE, "B", "(B) or (C)", 0},
    {VERIFY_CHOICE, "B", "B and C", 0},
    {VERIFY_CHOICE, "B", "B & C", 0},
    {VERIFY_CHOICE, "D", "B, C, D", 0},
    {VERIFY_MATH, "1", "\\boxed{\\text{-\\text{-\\text{1}}}}", 0},
    {VERIFY_MATH, "1000/3", "\\boxed{\\frac{1,000}{3}}", 1},
    {VERIFY_MATH, "1000/3", "\\boxed{1,000/3}", 1},
    {VERIFY_MATH, "1/3", "\\boxed{33.333333\\%}", 1},
    {VERIFY_MATH, "1/4", "\\boxed{25\\%}", 1},
    {VERIFY_MATH, "1/4", "\\boxed{\\frac{50}{2}\\%}", 1},
    {VERIFY_MATH, "1/4", "\\boxed{26\\%}", 0},
    /* choice */
    {VERIFY_CHOICE, "B", "B", 1},
    {VERIFY_CHOICE, "B", "(B)", 1},
    {VERIFY_CHOICE, "B", "B) because", 1},
    {VERIFY_CHOICE, "B", "The answer is (B).", 1},
    {VERIFY_CHOICE, "B", "The answer is A. No: the answer is B", 1},
    {VERIFY_CHOICE, "B", "\\boxed{B}", 1},
    {VERIFY_CHOICE, "B", "A good answer is B", 1},
    {VERIFY_CHOICE, "B", "C", 0},
    {VERIFY_CHOICE, "B", "Because", 0},
    {VERIFY_CHOICE, "B", "", 0},
    {VERIFY_CHOICE, "(B)", "b", 0},
    {VERIFY_CHOICE, "C", "Option C is correct", 1},
    {VERIFY_CHOICE, "C", "C is right", 1},
    {VERIFY_CHOICE, "B", "B because it is larger", 1},
    {VERIFY_CHOICE, "A", "The answer is A because", 1},
    {VERIFY_CHOICE, "B", "The answer is A because (B) is too small", 0},
    {VERIFY_CHOICE, "A", "The answer is A because (B) is too small", 1},
    {VERIFY_CHOICE, "A", "A because it is larger", 1},
    {VERIFY_CHOICE, "A", "A is right", 1},
    {VERIFY_CHOICE, "B", "A B is right", 1},
    {VERIFY_CHOICE, "A", "The answer is A and not B", 1},
    {VERIFY_CHOICE, "B", "The answer is B, not (C)", 1},
    {VERIFY_CHOICE, "A", "Answer: A and nothing else", 1},
    {VERIFY_CHOICE, "A", "Option A fits", 1},
    {VERIFY_CHOICE, "A", "A car is red", 0},
    {VERIFY_CHOICE, "B", "A car is red: B", 1},
    {VERIFY_CHOICE, "B",
     "\xe7\xad\x94\xe6\xa1\x88\xe6\x98\xaf"
     "B",
     1},
    {VERIFY_CHOICE, "B",
     "\xe6\xad\xa3\xe7\xa1\xae\xe7\xad\x94\xe6\xa1\x88\xe4\xb8\xba"
     "B\xe3\x80\x82",
     1},
    {VERIFY_CHOICE, "A",
     "\xe7\xad\x94\xe6\xa1\x88\xe6\x98\xaf"
     "A \xe5\x9b\xa0\xe4\xb8\xba",
     1},
    {VERIFY_CHOICE, "B",
     "A\xe4\xb8\x8d\xe5\xaf\xb9\xef\xbc\x8c\xe7\xad\x94\xe6\xa1\x88\xe6\x98\xaf"
     "B",
     1},
    {VERIFY_CHOICE, "A",
     "A\xe4\xb8\x8d\xe5\xaf\xb9\xef\xbc\x8c\xe7\xad\x94\xe6\xa1\x88\xe6\x98\xaf"
     "B",
     0},
    {VERIFY_CHOICE, "B", "\xec\xa0\x95\xeb\x8b\xb5\xec\x9d\x80 B\xec\x9e\x85\xeb\x8b\x88\xeb\x8b\xa4", 1},
    {VERIFY_CHOICE, "B",
     "\xef\xbc\x88"
     "B\xef\xbc\x89",
     1},
    {VERIFY_CHOICE, "B", "The answer: I believe it is (B)", 1},
    {VERIFY_CHOICE, "I", "The answer: I believe it is (B)", 0},
    {VERIFY_CHOICE, "I", "The answer is I because", 1},
    {VERIFY_CHOICE, "I", "Answer: I", 1},
    {VERIFY_CHOICE, "C", "I think C", 1},
    {VERIFY_CHOICE, "I", "I think C", 0},
    {VERIFY_CHOICE, "I", "I\xe2\x80\x99m not sure", 0},
    {VERIFY_CHOICE, "I", "I'm not sure", 0},
    {VERIFY_CHOICE, "I", "Option I is correct", 1},
    {VERIFY_CHOICE, "c", "C", 1},
    {VERIFY_CHOICE, "c", "The answer is (C).", 1},
    {VERIFY_CHOICE, "c", "B", 0},
    {VERIFY_CHOICE, "C. Paris", "C", 1},
    {VERIFY_CHOICE, "B", "\\boxed{\\text{B}}", 1},
    {VERIFY_CHOICE, "B", "\\boxed{ B }", 1},
    {VERIFY_CHOICE, "B", "**B**", 1},
    {VERIFY_CHOICE, "B", "B\xc3\xa4r", 0},
    {VERIFY_CHOICE, "D", "D\xc3\xa9", 0},
    {VERIFY_CHOICE, "C",
     "\xc3\xa9"
     "C",
     0},
    {VERIFY_CHOICE, "C", "\xd0\x91 C", 1},
    {VERIFY_CHOICE, "J", "J", 1},
    {VERIFY_CHOICE, "B", "Vitamin B12", 0},
    {VERIFY_CHOICE, "B", "The answers are many", 0},
    {VERIFY_CHOICE, "A", "The answer is\nA\nbecause", 1},
    /* regex */
    {VERIFY_REGEX, "^\\d{3}$", "123", 1},
    {VERIFY_REGEX, "^\\d{3}$", "1234", 0},
    {VERIFY_REGEX, "(?i)paris", "It is Paris.", 1},
    /* must not backtrack exponentially */
    {VERIFY_REGEX, "(a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", 0},
    /* format */
    {VERIFY_FORMAT, "", "<think>a</think> b", 1},
    {VERIFY_FORMAT, "", "\n<think></think>b", 1},
    {VERIFY_FORMAT, "", "<think>a</think>", 0},
    {VERIFY_FORMAT, "", "b", 0},
    {VERIFY_FORMAT, "", "x<think>a</think>b", 0},
    {VERIFY_FORMAT, "", "<think>a<think>b</think>c", 0},
    {VERIFY_FORMAT, "", "</think><think>", 0},
    {VERIFY_FORMAT, "", "<think>", 0},
    /* word error rate */
    {VERIFY_WER, "a b c d", "a b c d", 1},
    {VERIFY_WER, "A b, c d!", "a B c d", 1},
    {VERIFY_WER, "a b c d", "a x c d", 0.75},
    {VERIFY_WER, "a b c d", "a c d", 0.75},
    {VERIFY_WER, "a b c d", "a b b c d", 0.75},
    {VERIFY_WER, "a b", "c d e f", 0},
    {VERIFY_WER, "a b", "", 0},
    {VERIFY_WER, "\xe4\xbd\xa0\xe5\xa5\xbd", "\xe4\xbd\xa0", 0.5},
    {VERIFY_WER, "\xe4\xbd\xa0\xe5\xa5\xbd", "\xe4\xbd\xa0 \xe5\xa5\xbd\xe3\x80\x82", 1},
    {VERIFY_WER,
     "\xc3\x89"
     "cole",
     "\xc3\xa9"
     "cole",
     1},
    {VERIFY_WER, "\xc3\x84pfel", "\xc3\xa4pfel", 1},
    {VERIFY_WER, "\xc3\x84pfel", "Apfel", 0},
    {VERIFY_WER, "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 \xd0\xbc\xd0\xb8\xd1\x80",
     "\xd0\xbf\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82, \xd0\xbc\xd0\xb8\xd1\x80!", 1},
    {VERIFY_WER, "qu\xc3\xa9 tal", "\xc2\xbfqu\xc3\xa9 tal?", 1},
    {VERIFY_WER, "bonjour dit-il",
     "\xc2\xab"
     "bonjour\xc2\xbb dit-il",
     1},
    {VERIFY_WER, "don't", "don\xe2\x80\x99t", 1},
    {VERIFY_WER, "don't", "dont", 0},
    {VERIFY_WER, "\xd0\xba\xd0\xbe\xd0\xbc\xd0\xbf\xe2\x80\x99\xd1\x8e\xd1\x82\xd0\xb5\xd1\x80",
     "\xd0\xba\xd0\xbe\xd0\xbc\xd0\xbf\xca\xbc\xd1\x8e\xd1\x82\xd0\xb5\xd1\x80", 1},
    {VERIFY_WER, "caf\xc3\xa9", "cafe\xcc\x81", 1},
    {VERIFY_WER, "caf\xc3\xa9", "cafe", 0},
    {VERIFY_WER,
     "Stra\xc3\x9f"
     "e",
     "STRASSE", 1},
    {VERIFY_WER, "say word now", "say \xe2\x80\x98word\xe2\x80\x99 now", 1},
    {VERIFY_WER, "say word now", "say 'word' now", 1},
    {VERIFY_WER, "co\xc2\xadop", "coop", 1},
    {VERIFY_WER, "a b", "a \xe2\x80\x94 b\xe2\x80\xa6", 1},
    {VERIFY_WER, "a b", "a \xf0\x9f\x99\x82 b", 1},
    {VERIFY_WER, "a_b", "a b", 1},
    {VERIFY_WER,
     "\xe0\xa4\xb9\xe0\xa4\xbf\xe0\xa4\xa8\xe0\xa5\x8d\xe0\xa4\xa6\xe0\xa5\x80 \xe0\xa4\xae\xe0\xa5\x87\xe0\xa4\x82",
     "\xe0\xa4\xb9\xe0\xa4\xbf\xe0\xa4\xa8\xe0\xa5\x8d\xe0\xa4\xa6\xe0\xa5\x80, \xe0\xa4\xae\xe0\xa5\x87\xe0\xa4\x82",
     1},
    {VERIFY_WER, "\xed\x95\x9c\xea\xb5\xad\xec\x96\xb4 \xeb\xa7\x90",
     "\xed\x95\x9c\xea\xb5\xad\xec\x96\xb4 \xeb\xa7\x90.", 1},
    {VERIFY_WER, "\xe3\x82\xab\xe3\x82\x99", "\xe3\x82\xac", 1},
    {VERIFY_WER, "\xe4\xbd\xa0\xe5\xa5\xbd", "\xe4\xbd\xa0 \xe5\xa5\xbd\xe3\x80\x82", 1},
    {VERIFY_WER, "a b", "a \xff\xe2\x82 b", 1}, /* invalid UTF-8 is not a word */
    {VERIFY_WER, "a b", "a\xc3", 0.5},
    {VERIFY_WER, "\xff", "\xff", 1},
    {VERIFY_WER, "\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9.", 1},
};

static void test_verifiers(void **state)
{
    i64 wrong = 0;
    (void)state;
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        const struct verify_case *c = &cases[i];
        double score = -1;
        if (verify(&score, c->verifier, c->truth, c->answer))
            fail_msg("case %lld: %s", (long long)i, error_text());
        if (fabs(score - c->score) <= 1e-12)
            continue;
        print_error("%d: truth \"%s\", answer \"%s\": %g, expected %g\n", (int)c->verifier, c->truth, c->answer, score,
                    c->score);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

static void test_text_behind_a_gsm8k_answer_does_not_hide_it(void **state)
{
    struct buffer answer = {0};
    double score;
    (void)state;
    buffer_printf(&answer, "#### 72\n");
    for (int i = 0; i < 400; i++)
        buffer_printf(&answer, "and so ");
    assert_int_equal(verify(&score, VERIFY_GSM8K, "72", answer.data), 0);
    assert_true(score == 1);
    buffer_release(&answer);
}

/* Deep, long and huge formulas must not hang or overflow the stack. */
static void test_formulas_that_are_traps(void **state)
{
    static const char *const repeated[] = {"(",        "{",       "2^", "9!+", "3000!*", "\\frac", "\\sqrt",
                                           "\\text{-", "\\binom", "1,", "(1,", "-",      "\\pm",   "="};
    double score;
    (void)state;
    for (i64 i = 0; i < COUNT_OF(repeated); i++)
        for (i64 length = 100; length <= 1000000; length *= 100) {
            struct buffer answer = {0};
            buffer_printf(&answer, "\\boxed{x");
            while (answer.length < length)
                buffer_printf(&answer, "%s", repeated[i]);
            buffer_printf(&answer, "x}");
            assert_int_equal(verify(&score, VERIFY_MATH, "x+1,x+2,x+3", answer.data), 0);
            assert_true(score == 0);
            buffer_release(&answer);
        }
    assert_int_equal(verify(&score, VERIFY_MATH, "23!!", "\\boxed{1000000000000000!}"), 0);
    assert_true(score == 0);
    assert_int_equal(verify(&score, VERIFY_MATH, "9^{9^{9^{9}}}", "\\boxed{9^{9^{9^{8}}}}"), 0);
    assert_true(score == 0);
}

static void test_ground_truths_that_are_none(void **state)
{
    double score;
    (void)state;
    assert_int_equal(verify(&score, VERIFY_EXACT, " ", "x"), -1);
    static const char *const none[] = {"k", "K", "Paris", "12", "A cat"};
    for (i64 i = 0; i < COUNT_OF(none); i++) {
        assert_int_equal(verify(&score, VERIFY_CHOICE, none[i], "A"), -1);
        assert_non_null(strstr(error_text(), none[i]));
        assert_non_null(strstr(error_text(), "A to J"));
    }
    assert_int_equal(verify(&score, VERIFY_REGEX, "(", "x"), -1);
    assert_non_null(strstr(error_text(), "regular expression"));
}

/* ---- Dispatch and prompts ---- */

static struct text_tokenizer *tokenizer;

static char *write_file(const char *name, const char *content)
{
    char *path = string_format("/dev/shm/weft-verify-%ld-%s", (long)getpid(), name);
    require(file_replace(path, content, (i64)strlen(content)) == 0, "%s", error_text());
    return path;
}

static int load(struct prompts *out, const char *name, const char *content)
{
    char *path = write_file(name, content);
    int status = prompts_load(out, path, tokenizer, 0);
    unlink(path);
    memory_free(path);
    return status;
}

static enum verifier dispatched(const char *source, const char *ability, const char *style)
{
    enum verifier out;
    struct task task = {.data_source = source, .ability = ability, .style = style, .origin = "here"};
    return verifier_of(&out, &task) ? VERIFY_AUTO : out;
}

static void test_dispatch(void **state)
{
    (void)state;
    assert_int_equal(dispatched("weft/sort", "sorting", "rule"), VERIFY_EXACT);
    assert_int_equal(dispatched("openai/gsm8k", "math", "rule"), VERIFY_GSM8K);
    assert_int_equal(dispatched("lighteval/MATH", "", "rule"), VERIFY_MATH);
    assert_int_equal(dispatched("mine", "math", "rule"), VERIFY_MATH);
    assert_int_equal(dispatched("openai/gsm8k", "math", "regex"), VERIFY_REGEX);
    assert_int_equal(dispatched("mine", "asr", ""), VERIFY_WER);
    assert_int_equal(dispatched("mine", "", "program"), VERIFY_PROGRAM);
    assert_int_equal(dispatched("mine", "cooking", "rule"), VERIFY_AUTO);
    assert_non_null(strstr(error_text(), "cooking"));
}

static void test_prompts(void **state)
{
    struct prompts p;
    struct buffer text = {0};
    (void)state;
    assert_int_equal(load(&p, "a.jsonl",
                          "{\"data_source\":\"weft/sort\",\"prompt\":[{\"role\":\"system\",\"content\":\"be brief\"},"
                          "{\"role\":\"user\",\"content\":\"<|im_end|>\"}],\"reward_model\":{\"ground_truth\":72}}\n\n"
                          "{\"prompt\":\"hi\",\"extra_info\":{\"think\":\"well\",\"pass\":0.5}}"),
                     0);
    assert_int_equal(p.count, 2);
    assert_string_equal(p.list[0].ground_truth, "72");
    assert_int_equal(text_decode(tokenizer, &text, p.list[0].ids.ids, p.list[0].ids.count, false), 0);
    assert_string_equal(text.data, "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\n<|im_end|><|im_end|>\n"
                                   "<|im_start|>assistant\n");
    buffer_clear(&text);
    assert_int_equal(text_decode(tokenizer, &text, p.list[0].ids.ids, p.list[0].ids.count, true), 0);
    /* the content's marker is not a special token */
    assert_string_equal(text.data, "system\nbe brief\nuser\n<|im_end|>\nassistant\n");
    buffer_clear(&text);
    assert_int_equal(text_decode(tokenizer, &text, p.list[1].think.ids, p.list[1].think.count, false), 0);
    assert_string_equal(text.data, "<think>\nwell");
    assert_true(p.list[1].pass == 0.5);
    buffer_release(&text);
    prompts_release(&p);
}

/* Contents that are lists of texts, as OpenAI's messages have them. */
static void contents_may_be_lists_of_texts(void **state)
{
    struct prompts p;
    struct buffer text = {0};
    (void)state;
    assert_int_equal(
        load(&p, "parts.jsonl",
             "{\"prompt\":[{\"role\":\"system\",\"content\":[\"be \",{\"text\":\"brief\"}]},{\"role\":\"user\","
             "\"content\":[{\"type\":\"text\",\"text\":\"sort 31\"}]}],\"reward_model\":{\"ground_truth\":\"13\"}}"),
        0);
    assert_int_equal(text_decode(tokenizer, &text, p.list[0].ids.ids, p.list[0].ids.count, false), 0);
    assert_string_equal(text.data, "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nsort 31<|im_end|>\n"
                                   "<|im_start|>assistant\n");
    buffer_release(&text);
    prompts_release(&p);
    assert_int_equal(load(&p, "nan.json", "[{\"prompt\": \"sort 31\", \"score\": NaN}]"), 0);
    prompts_release(&p);
    assert_int_equal(load(&p, "media.jsonl",
                          "{\"prompt\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"image\":\"a.png\"}]}]}"),
                     -1);
    assert_non_null(strstr(error_text(), "part 1 has the type \"image\": prompts are text only"));
}

#define PROMPT(text, truth) "{\"prompt\":\"" text "\",\"reward_model\":{\"ground_truth\":\"" truth "\"}}\n"

static void held_out_prompts_are_compared_with_those_of_training(void **state)
{
    struct prompts train, held_out;
    const char *truth;
    (void)state;
    assert_int_equal(
        load(&train, "train.jsonl", PROMPT("one", "a") PROMPT("two", "b") PROMPT("three", "b") PROMPT("four", "c")), 0);
    assert_int_equal(load(&held_out, "held.jsonl",
                          PROMPT("five", "b") PROMPT("three", "z") PROMPT("one", "a") PROMPT("thre", "y")
                              PROMPT("three", "b")),
                     0);
    assert_int_equal(prompts_in_common(&held_out, &train), 3); /* whatever their truth */
    assert_int_equal(prompts_in_common(&train, &held_out), 2);
    assert_float_equal(prompts_constant(&held_out, &train, &truth), 0.4, 1e-12);
    assert_string_equal(truth, "b");
    prompts_release(&train);
    prompts_release(&held_out);
}

static void prompts_may_stand_in_a_table(void **state)
{
    struct prompts p;
    struct buffer text = {0};
    (void)state;
    assert_int_equal(prompts_load(&p, GOLDEN "/tables/forms/verl.parquet", tokenizer, 0), 0);
    assert_int_equal(p.count, 1);
    assert_string_equal(p.list[0].data_source, "openai/gsm8k");
    assert_string_equal(p.list[0].ground_truth, "6");
    assert_string_equal(p.list[0].style, "rule");
    assert_int_equal(text_decode(tokenizer, &text, p.list[0].ids.ids, p.list[0].ids.count, false), 0);
    assert_string_equal(text.data, "<|im_start|>user\n2*3?<|im_end|>\n<|im_start|>assistant\n");
    buffer_release(&text);
    prompts_release(&p);
    assert_int_equal(prompts_load(&p, GOLDEN "/tables/forms/text.parquet", tokenizer, 0), -1);
    assert_non_null(strstr(error_text(), "text.parquet:1: key prompt"));
}

static void questions_are_prompts_as_published(void **state)
{
    static const char *const names[] = {"qa.parquet", "qa.jsonl",           "qa.json",
                                        "qa.csv",     "packed_qa.jsonl.gz", "packed_qa.json.xz"};
    (void)state;
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        struct prompts p;
        enum verifier verifier;
        struct buffer text = {0};
        char *path = string_format("%s/tables/forms/%s", GOLDEN, names[i]);
        assert_int_equal(prompts_load(&p, path, tokenizer, 0), 0);
        assert_int_equal(p.count, 2);
        assert_string_equal(p.list[0].ground_truth, "2");
        assert_int_equal(verifier_of(&verifier, &p.list[1]), 0);
        assert_int_equal(verifier, VERIFY_GSM8K);
        assert_int_equal(text_decode(tokenizer, &text, p.list[1].ids.ids, p.list[1].ids.count, false), 0);
        assert_string_equal(text.data, "<|im_start|>user\n2*3?<|im_end|>\n<|im_start|>assistant\n");
        buffer_release(&text);
        prompts_release(&p);
        memory_free(path);
    }
}

static void test_bad_prompts(void **state)
{
    static const struct {
        const char *name, *content, *message;
    } bad[] = {{"b.jsonl", "", "no prompts"},
               {"b.jsonl", "{\"prompt\":\"a\"}\n{\"prompt\":[]}", ":2"},
               {"b.jsonl", "{\"prompt\":\"a\"}\n{", ":2"},
               {"b.jsonl", "[]", "object"},
               {"b.jsonl", "{\"prompt\":[{\"role\":\"user\"}]}", "content"},
               {"b.jsonl", "{\"prompt\":[{\"role\":\"user\",\"content\":[1]}]}", "content"},
               {"b.jsonl", "{\"prompt\":\"a\",\"images\":[\"x.png\"]}", "text only"},
               {"b.jsonl", "{\"prompt\":\"a\",\"extra_info\":{\"pass\":2}}", "success rate"},
               {"b.json", "{\"prompt\":\"a\"}", "list"},
               {"b.json", "[{\"prompt\":\"a\"}, 3]", ":2"}};
    (void)state;
    for (i64 i = 0; i < COUNT_OF(bad); i++) {
        struct prompts p;
        assert_int_equal(load(&p, bad[i].name, bad[i].content), -1);
        if (!strstr(error_text(), bad[i].message))
            fail_msg("%s: \"%s\" lacks \"%s\"", bad[i].content, error_text(), bad[i].message);
    }
}

static void test_order_has_each_prompt_once_an_epoch(void **state)
{
    struct prompt_order order;
    i64 seen[7] = {0}, moved = 0;
    (void)state;
    prompt_order_init(&order, 7, 3);
    for (i64 i = 0; i < 21; i++)
        seen[prompt_order_at(&order, i)]++;
    for (i64 i = 0; i < 7; i++) {
        assert_int_equal(seen[i], 3);
        moved += prompt_order_at(&order, i) != prompt_order_at(&order, i + 7);
    }
    assert_true(moved > 0);
    prompt_order_release(&order);
}

/* ---- Programs ---- */

static int ask_within(struct json **answers, const char *script, i64 count, const struct program_limits *limits)
{
    char *const argv[] = {"sh", "-c", (char *)script, NULL};
    struct json *questions[300] = {0};
    for (i64 i = 0; i < count; i++) {
        questions[i] = json_object();
        json_set(questions[i], "id", json_of_integer(i));
        json_set(questions[i], "response",
                 json_of_string("an answer that takes some room in the pipe, and more, and more"));
    }
    int status = program_ask(answers, argv, questions, count, limits);
    for (i64 i = 0; i < count; i++)
        json_free(questions[i]);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child process remains */
    return status;
}

static int ask(struct json **answers, const char *script, i64 count, double seconds)
{
    return ask_within(answers, script, count, &(struct program_limits){.seconds = seconds});
}

static void test_programs(void **state)
{
    struct json *answers[300];
    (void)state;
    assert_int_equal(ask(answers, "while read line; do echo '{\"score\": 0.25}'; done", 300, TEST_SECONDS_MOST), 0);
    for (i64 i = 0; i < 300; i++) {
        assert_true(json_number(json_get(answers[i], "score"), 0) == 0.25);
        json_free(answers[i]);
    }
    assert_int_equal(ask(answers, "echo '{\"id\":1,\"score\":1}'; printf '{\"id\":0,\"observation\":\"go on\"}'", 2,
                         TEST_SECONDS_MOST),
                     0);
    assert_string_equal(json_string(json_get(answers[0], "observation"), ""), "go on");
    assert_int_equal(json_integer(json_get(answers[1], "score"), 0), 1);
    json_free(answers[0]);
    json_free(answers[1]);
    assert_int_equal(ask(answers, "exit 1", 0, TEST_SECONDS_MOST), 0); /* no questions */
}

struct bad_program {
    const char *script, *message;
    double seconds; /* 0: TEST_SECONDS_MOST */
};

static void test_bad_programs(void **state)
{
    static const struct bad_program bad[] = {
        {"sleep 10000", "within", 0.1},                                     /* hangs */
        {"trap '' TERM INT HUP; while :; do sleep 1; done", "within", 0.1}, /* ignores signals */
        {"sleep 10000 & sleep 10000", "within", 0.1},                       /* its child holds the pipe */
        {"read line; echo '{\"score\":1}'; exit 3", "status 3"},
        {"kill -SEGV $$", "signal 11"},
        {"cat", "expected {\"score\""},
        {"yes", "line 1"},
        {"echo", "line 1"},
        {"echo '{\"score\": \"high\"}'", "NUMBER"},
        {"echo '{\"score\": 1, \"id\": 7}'; echo '{\"score\":1}'", "7"},
        {"echo '{\"score\": 1, \"id\": 0}'; echo '{\"score\":1,\"id\":0}'", "answered before"},
        {"printf '\\000\\377\\n\\n'", "line 1"},
        {"exec < /dev/null", "answered 0"},
        {"exec > /dev/null", "answered 0"},
        {"no_such_program_at_all", "status 127"}};
    (void)state;
    for (i64 i = 0; i < COUNT_OF(bad); i++) {
        struct json *answers[300];
        assert_int_equal(ask(answers, bad[i].script, 2, bad[i].seconds > 0 ? bad[i].seconds : TEST_SECONDS_MOST), -1);
        if (!strstr(error_text(), bad[i].message))
            fail_msg("%s: \"%s\" lacks \"%s\"", bad[i].script, error_text(), bad[i].message);
    }
    struct json *answers[1], *question = json_object();
    char *const nobody[] = {"/no/such/file", NULL};
    assert_int_equal(program_ask(answers, nobody, &question, 1, &(struct program_limits){.seconds = 1}), -1);
    assert_non_null(strstr(error_text(), "/no/such/file"));
    json_free(question);
}

/* Both pipes fill up: a program that writes a lot before reading must not cause a deadlock. */
static void test_full_pipes(void **state)
{
    struct json *answers[300];
    char *script = string_format("i=0; while [ $i -lt 300 ]; do printf '{\"score\":1,\"why\":\"%%01000d\"}\\n' 7; "
                                 "i=$((i+1)); done; cat > /dev/null");
    (void)state;
    assert_int_equal(ask(answers, script, 300, TEST_SECONDS_MOST), 0);
    for (i64 i = 0; i < 300; i++)
        json_free(answers[i]);
    memory_free(script);
}

/* ---- Hostile programs ---- */

/* Asks one question. The program answers 1 if `condition`, a shell command, succeeds, else 0. -1: no
 * answer. */
static double score_of(const char *condition, const struct program_limits *limits)
{
    struct json *answers[1];
    char *script = string_format("if %s; then echo '{\"score\":1}'; else echo '{\"score\":0}'; fi", condition);
    double score = -1;
    if (ask_within(answers, script, 1, limits) == 0) {
        score = json_number(json_get(answers[0], "score"), -1);
        json_free(answers[0]);
    }
    memory_free(script);
    return score;
}

/* Processes whose command line has the text. */
static i64 running(const char *text)
{
    char **names;
    i64 count, found = 0;
    require(directory_list(&names, &count, "/proc") == 0, "%s", error_text());
    for (i64 i = 0; i < count; i++) {
        char *path = string_format("/proc/%s/cmdline", names[i]), line[4096];
        FILE *file = fopen(path, "re");
        size_t n = file ? fread(line, 1, sizeof line, file) : 0;
        found += memmem(line, n, text, strlen(text)) != NULL;
        if (file)
            fclose(file);
        memory_free(path);
    }
    string_list_free(names, count);
    return found;
}

static void nothing_outlives_a_program(void **state)
{
    static const char *const scripts[] = {
        "setsid sleep %s & echo '{\"score\":1}'",
        "(setsid sh -c 'sleep %s & sleep %s' > /dev/null 2>&1 < /dev/null &); echo '{\"score\":1}'",
        "(trap '' HUP TERM; setsid nohup sleep %s > /dev/null 2>&1 &) & echo '{\"score\":1}'; sleep %s",
        "setsid sh -c 'while :; do sleep %s & sleep 0.01; done' & sleep 0.2; echo '{\"score\":1}'",
    };
    char seconds[32];
    (void)state;
    snprintf(seconds, sizeof seconds, "60.%ld", (long)getpid());
    for (i64 i = 0; i < COUNT_OF(scripts); i++) {
        struct json *answers[1];
        char *script = string_format(scripts[i], seconds, seconds);
        assert_int_equal(ask(answers, script, 1, TEST_SECONDS_MOST), 0);
        assert_int_equal(running(seconds), 0);
        json_free(answers[0]);
        memory_free(script);
    }
}

/* Children of the caller that are not the program's must live on. */
static void other_children_are_left_alone(void **state)
{
    struct json *answers[1], *question = json_object();
    char *const argv[] = {"sh", "-c", "setsid sleep 60 & echo '{\"score\":1}'", NULL};
    (void)state;
    pid_t other = fork();
    if (other == 0)
        for (;;)
            pause();
    assert_int_equal(program_ask(answers, argv, &question, 1, &(struct program_limits){.seconds = TEST_SECONDS_MOST}),
                     0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), 0);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(other, NULL, 0), other);
    json_free(answers[0]);
    json_free(question);
}

static void programs_have_limits(void **state)
{
    char *path = string_format("/dev/shm/weft-verify-%ld-big", (long)getpid()), *script;
    const struct program_limits limits = {
        .seconds = TEST_SECONDS_MOST, .memory_mb = 200, .processes = 20, .file_mb = 1};
    struct buffer written = {0};
    struct json *answers[1];
    (void)state;
    assert_int_equal(ask_within(answers, "while :; do sleep 60 & done", 1, &limits), -1);
    assert_non_null(strstr(error_text(), "program_processes"));
    assert_int_equal(ask_within(answers, "while :; do setsid sleep 60 & done", 1, &limits), -1);
    assert_non_null(strstr(error_text(), "program_processes"));
    assert_true(score_of("tail /dev/zero 2> /dev/null", &limits) == 0); /* wants all memory */
    script = string_format("head -c 3000000 /dev/zero > %s 2> /dev/null", path);
    assert_true(score_of(script, &limits) == 0);
    assert_int_equal(file_read(&written, path), 0);
    assert_int_equal(written.length, 1000000);
    assert_true(score_of("[ \"$(ulimit -c)\" = 0 ] && [ \"$(ulimit -t)\" -gt 0 ]", &limits) == 1);
    assert_true(score_of("grep -q 'NoNewPrivs:.1' /proc/self/status", &limits) == 1);
    assert_int_equal(ask(answers, "kill -STOP $$", 1, 0.1), -1);
    assert_int_equal(ask(answers, "exec 0<&-; i=0; while [ $i -lt 17 ]; do l=\"[$l$l\"; i=$((i+1)); done; echo $l", 1,
                         TEST_SECONDS_MOST),
                     -1);
    unlink(path);
    buffer_release(&written);
    memory_free(script);
    memory_free(path);
}

static void programs_see_named_variables_only(void **state)
{
    char *names[] = {"WEFT_SECRET"};
    const struct program_limits without = {.seconds = TEST_SECONDS_MOST},
                                with = {.seconds = TEST_SECONDS_MOST, .environment = {names, 1}};
    (void)state;
    setenv("WEFT_SECRET", "1", 1);
    setenv("WEFT_SECRET_2", "1", 1);
    assert_true(score_of("env | grep -q WEFT_SECRET", &without) == 0);
    assert_true(score_of("env | grep -q ^WEFT_SECRET=1", &with) == 1);
    assert_true(score_of("env | grep -q WEFT_SECRET_2", &with) == 0);
    assert_true(score_of("env | grep -q ^PATH=", &without) == 1);
    unsetenv("WEFT_SECRET");
    unsetenv("WEFT_SECRET_2");
}

static void scores_and_observations_are_bounded(void **state)
{
    static const struct bad_program bad[] = {
        {"echo '{\"score\": 1000001}'", "1e6"},
        {"echo '{\"score\": -1e7}'", "1e6"},
        {"echo '{\"score\": 1e999}'", "line 1"},
        {"echo '{\"score\": NaN}'", "line 1"},
        {"printf '{\"observation\":\"'; head -c 1048577 /dev/zero | tr '\\0' x; echo '\"}'", "observation"}};
    struct json *answers[1];
    (void)state;
    for (i64 i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(ask(answers, bad[i].script, 1, TEST_SECONDS_MOST), -1);
        if (!strstr(error_text(), bad[i].message))
            fail_msg("%s: \"%s\" lacks \"%s\"", bad[i].script, error_text(), bad[i].message);
    }
}

/* A program may write any number of messages and still answer; few of them are passed on. */
static void messages_are_capped(void **state)
{
    char *path = string_format("/dev/shm/weft-verify-%ld-messages", (long)getpid());
    struct buffer passed = {0};
    int before = dup(2), file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    (void)state;
    require(before >= 0 && file >= 0 && dup2(file, 2) == 2, "cannot redirect");
    double score =
        score_of("head -c 5000000 /dev/zero | tr '\\0' x >&2", &(struct program_limits){.seconds = TEST_SECONDS_MOST});
    dup2(before, 2);
    close(before);
    close(file);
    assert_int_equal(file_read(&passed, path), 0);
    assert_true(score == 1);
    assert_in_range(passed.length, 65536, 66000);
    buffer_release(&passed);
    unlink(path);
    memory_free(path);
}

static void a_sandbox_shows_no_network_no_processes_and_no_writable_file(void **state)
{
    const struct program_limits limits = {.seconds = TEST_SECONDS_MOST, .sandbox = 1},
                                open_limits = {.seconds = TEST_SECONDS_MOST};
    char *flag = string_format("/tmp/weft-verify-%ld-flag", (long)getpid());
    char *kill_us = string_format("kill -0 %ld 2> /dev/null", (long)getpid());
    char *write_here = string_format("( : > %s ) 2> /dev/null", flag);
    (void)state;
    if (program_check_sandbox()) {
        print_message("%s\n", error_text());
        assert_non_null(strstr(error_text(), "sandbox: off"));
        assert_true(score_of("true", &limits) == -1);
    } else {
        assert_true(score_of("true", &limits) == 1);
        assert_true(score_of(kill_us, &open_limits) == 1);
        assert_true(score_of(kill_us, &limits) == 0);
        assert_true(score_of(write_here, &limits) == 0);
        assert_false(file_exists(flag));
        unlink(flag);
        assert_true(score_of("( echo 1 > \"$TMPDIR/a\" ) && [ \"$(cat /dev/shm/a)\" = 1 ]", &limits) == 1);
        assert_true(score_of("[ -e /dev/shm/a ]", &limits) == 0); /* gone with the program */
        assert_true(score_of("ls /proc/net/dev > /dev/null 2>&1 && grep -qv 'lo:' /proc/net/dev && "
                             "[ $(grep -c : /proc/net/dev) -gt 1 ]",
                             &limits) == 0);
        assert_true(score_of("[ ! -e /proc/self/status ] || grep -q 'CapEff:.0*$' /proc/self/status", &limits) == 1);
        assert_true(score_of("[ -w /proc/sys/kernel/hostname ]", &limits) == 0);
        assert_true(score_of("unshare -Urm mount -o remount,rw,bind / 2> /dev/null", &limits) == 0);
        struct json *answers[1];
        assert_int_equal(ask_within(answers, "setsid sleep 60 & echo '{\"score\":1}'", 1, &limits), 0);
        json_free(answers[0]);
    }
    memory_free(flag);
    memory_free(kill_us);
    memory_free(write_here);
}

/* ---- Judging ---- */

static struct prompts graded;
static struct rollout_group rollout_group;

static void open_cohort(const char *style)
{
    char *line =
        string_format("{\"prompt\":\"say a\",\"reward_model\":{\"style\":\"%s\",\"ground_truth\":\"a\"}}", style);
    require(load(&graded, "j.jsonl", line) == 0, "%s", error_text());
    memory_free(line);
    rollout_group_init(&rollout_group, &graded.list[0], 0, 5, 2);
    for (i64 i = 0; i < 2; i++) {
        struct id_list ids = {0};
        text_encode(tokenizer, &ids, i ? "b" : "a", 1, NULL);
        answer_push(&rollout_group.rollouts[i].answer, ids.ids[0], -1, 1, false);
        answer_push(&rollout_group.rollouts[i].answer, text_token_id(tokenizer, "<|im_end|>"), -1, 1, false);
        rollout_group.rollouts[i].answer.done = rollout_group.rollouts[i].answer.ended = true;
        id_list_release(&ids);
    }
}

static void close_cohort(void)
{
    rollout_group_release(&rollout_group);
    prompts_release(&graded);
}

static i64 grade_once(const struct grader_settings *settings, const char *directory, i64 from_step, i64 step)
{
    struct rollout_group *list = &rollout_group;
    i64 open = -1;
    struct grader *grader = grader_open(settings, tokenizer, directory, from_step);
    require(grader, "%s", error_text());
    int status = grade_rollouts(&open, grader, &list, 1, step, 100);
    grader_close(grader);
    return status ? -1 : open;
}

static void forget_rewards(void)
{
    for (i64 i = 0; i < 2; i++) {
        rollout_group.rollouts[i].graded = rollout_group.rollouts[i].ungraded = false;
        rollout_group.rollouts[i].reward = -1;
    }
}

static void test_rewards_are_written_and_replayed(void **state)
{
    char *directory = string_format("/dev/shm/weft-verify-%ld", (long)getpid());
    char *path = path_join(directory, "rewards.jsonl");
    char *argv[] = {"sh", "-c", "while read line; do echo '{\"score\": 0.5}'; done"}, *broken[] = {"false"};
    struct grader_settings good = {.program = {argv, 3}, .limits.seconds = TEST_SECONDS_MOST},
                           bad = {.program = {broken, 1}, .limits.seconds = TEST_SECONDS_MOST};
    struct buffer first = {0}, second = {0};
    (void)state;
    require(directory_remove(directory) == 0 && directory_make(directory) == 0, "%s", error_text());
    open_cohort("program");
    assert_int_equal(grade_once(&good, directory, 0, 3), 0);
    assert_true(rollout_group.rollouts[0].reward == 0.5 && rollout_group.rollouts[1].graded);
    assert_int_equal(file_read(&first, path), 0);
    forget_rewards();
    assert_int_equal(grade_once(&bad, directory, 3, 3), 0); /* cached: the program is not run */
    assert_true(rollout_group.rollouts[0].reward == 0.5);
    assert_int_equal(file_read(&second, path), 0);
    assert_string_equal(first.data, second.data);
    forget_rewards();
    assert_int_equal(grade_once(&bad, directory, 3, 4), -1);                           /* the step is part of the key */
    rollout_group.rollouts[0].answer.ids[0] = rollout_group.rollouts[1].answer.ids[0]; /* and so is the answer */
    assert_int_equal(grade_once(&bad, directory, 3, 3), -1);
    buffer_release(&first);
    buffer_release(&second);
    close_cohort();
    directory_remove(directory);
    memory_free(path);
    memory_free(directory);
}

/* After the first failure answers are ungraded, on disk
 * too; the next failure in a row is an error. */
static void test_a_program_that_hangs_costs_a_step(void **state)
{
    char *directory = string_format("/dev/shm/weft-verify-%ld", (long)getpid());
    char *argv[] = {"sh", "-c", "sleep 10000"};
    struct grader_settings hangs = {.program = {argv, 3}, .limits.seconds = 0.1, .failures = 1};
    struct rollout_group *list = &rollout_group;
    i64 open = -1;
    (void)state;
    require(directory_remove(directory) == 0 && directory_make(directory) == 0, "%s", error_text());
    open_cohort("program");
    struct grader *grader = grader_open(&hangs, tokenizer, directory, 0);
    assert_int_equal(grade_rollouts(&open, grader, &list, 1, 3, 100), 0);
    assert_true(open == 0 && rollout_group.rollouts[0].graded && rollout_group.rollouts[1].ungraded);
    assert_true(rollout_group_success(&rollout_group, 0) < 0);
    forget_rewards();
    assert_int_equal(grade_rollouts(&open, grader, &list, 1, 4, 100), -1);
    assert_non_null(strstr(error_text(), "2 times in a row"));
    grader_close(grader);
    forget_rewards();
    assert_int_equal(grade_once(&hangs, directory, 3, 3), 0); /* cached: the program is not run */
    assert_true(rollout_group.rollouts[0].ungraded);
    close_cohort();
    directory_remove(directory);
    memory_free(directory);
}

static void test_success_is_of_answers_without_a_hint(void **state)
{
    (void)state;
    open_cohort("exact");
    rollout_group.rollouts[0].reward = 30;
    rollout_group.rollouts[1].reward = 7;
    assert_true(rollout_group_success(&rollout_group, 10) == 0.5);
    assert_true(rollout_group_success(&rollout_group, 1) == 1);
    rollout_group.hint = 1;
    assert_true(rollout_group_success(&rollout_group, 1) < 0);
    close_cohort();
}

/* A kill in the middle of a line: complete lines are kept, the rest is graded again. */
static void test_a_torn_line_is_cut_off(void **state)
{
    char *directory = string_format("/dev/shm/weft-verify-%ld", (long)getpid());
    char *path = path_join(directory, "rewards.jsonl");
    struct grader_settings settings = {0};
    struct buffer all = {0};
    (void)state;
    require(directory_remove(directory) == 0 && directory_make(directory) == 0, "%s", error_text());
    assert_int_equal(file_replace(path, "{\"step\":3,\"pro", 14), 0);
    open_cohort("exact");
    assert_int_equal(grade_once(&settings, directory, 0, 3), 0);
    assert_true(rollout_group.rollouts[0].reward == 1 && rollout_group.rollouts[1].reward == 0);
    assert_int_equal(file_read(&all, path), 0);
    assert_ptr_equal(strstr(all.data, "{\"step\":3,\"prompt\":5,\"rollout\":0,\"turn\":0,"), all.data);
    buffer_release(&all);
    close_cohort();
    directory_remove(directory);
    memory_free(path);
    memory_free(directory);
}

static void test_observations_go_on(void **state)
{
    char *argv[] = {"sh", "-c", "read a; read b; echo '{\"observation\":\"more\"}'; echo '{\"score\":1}'"};
    struct grader_settings settings = {.program = {argv, 3}, .limits.seconds = TEST_SECONDS_MOST, .turns = 1};
    struct buffer text = {0};
    (void)state;
    open_cohort("program");
    assert_int_equal(grade_once(&settings, NULL, 0, 0), 1);
    assert_false(rollout_group.rollouts[0].answer.done);
    assert_int_equal(rollout_group.rollouts[0].turns, 1);
    assert_true(rollout_group.rollouts[1].graded);
    assert_int_equal(rollout_text(&text, &rollout_group, 0, tokenizer), 0);
    assert_string_equal(text.data, "a\nuser\nmore\nassistant\n");
    assert_true(rollout_group.rollouts[0].answer.given[2] && !rollout_group.rollouts[0].answer.given[1]);
    buffer_release(&text);
    close_cohort();
}

/* With 1 turn, nothing follows the second observation. */
static void test_observations_end_with_their_turns(void **state)
{
    char *argv[] = {"sh", "-c", "while read a; do echo '{\"observation\":\"more\"}'; done"};
    struct grader_settings settings = {.program = {argv, 3}, .limits.seconds = 10, .turns = 1};
    struct answer *a;
    (void)state;
    open_cohort("program");
    rollout_group.size = 1;
    a = &rollout_group.rollouts[0].answer;
    assert_int_equal(grade_once(&settings, NULL, 0, 0), 1);
    answer_push(a, text_token_id(tokenizer, "<|im_end|>"), -1, 1, false);
    a->done = a->ended = true;
    assert_int_equal(grade_once(&settings, NULL, 0, 0), 0);
    assert_true(rollout_group.rollouts[0].graded && rollout_group.rollouts[0].reward == 0);
    assert_int_equal(rollout_group.rollouts[0].turns, 1);
    rollout_group.size = 2;
    close_cohort();
}

/* Every other call fails: 1 failure in a row is permitted, and there are never 2. */
static void test_an_answer_forgives_failures(void **state)
{
    char *flag = string_format("/dev/shm/weft-verify-flag-%ld", (long)getpid());
    char *script = string_format("if [ -e %s ]; then rm %s; while read a; do echo '{\"score\":1}'; done;"
                                 "else touch %s; exit 1; fi",
                                 flag, flag, flag);
    char *argv[] = {"sh", "-c", script};
    struct grader_settings settings = {.program = {argv, 3}, .limits.seconds = 10, .failures = 1};
    struct grader *grader = grader_open(&settings, tokenizer, NULL, 0);
    struct rollout_group *list = &rollout_group;
    i64 open;
    (void)state;
    open_cohort("program");
    for (int time = 0; time < 4; time++) {
        forget_rewards();
        assert_int_equal(grade_rollouts(&open, grader, &list, 1, time, 100), 0);
        assert_int_equal(rollout_group.rollouts[0].ungraded, time % 2 == 0);
    }
    grader_close(grader);
    close_cohort();
    unlink(flag);
    memory_free(flag);
    memory_free(script);
}

static void test_null_is_no_score(void **state)
{
    char script[] = "read a; read b; echo '{\"score\":null,\"observation\":\"more\"}';"
                    "echo '{\"score\":0.25,\"observation\":\"more\"}'";
    char *argv[] = {"sh", "-c", script};
    struct grader_settings settings = {.program = {argv, 3}, .limits.seconds = TEST_SECONDS_MOST, .turns = 1};
    (void)state;
    open_cohort("program");
    assert_int_equal(grade_once(&settings, NULL, 0, 0), 1);
    assert_int_equal(rollout_group.rollouts[0].turns, 1);
    assert_false(rollout_group.rollouts[0].answer.done);
    assert_true(rollout_group.rollouts[1].graded && rollout_group.rollouts[1].reward == 0.25);
    close_cohort();
}

static int open_tokenizer(void **state)
{
    struct text_trainer *trainer =
        text_trainer_open(&(struct text_training){.vocabulary = 320, .special_tokens = grammar_special_tokens});
    (void)state;
    log_set_level(LOG_QUIET);
    text_trainer_feed(trainer, "the words of this text, and these words again", 45);
    tokenizer = text_trainer_finish(trainer);
    return tokenizer ? 0 : -1;
}

static int close_tokenizer(void **state)
{
    (void)state;
    text_tokenizer_free(tokenizer);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_verifiers),
                                       cmocka_unit_test(test_text_behind_a_gsm8k_answer_does_not_hide_it),
                                       cmocka_unit_test(test_formulas_that_are_traps),
                                       cmocka_unit_test(test_ground_truths_that_are_none),
                                       cmocka_unit_test(test_dispatch),
                                       cmocka_unit_test(test_prompts),
                                       cmocka_unit_test(contents_may_be_lists_of_texts),
                                       cmocka_unit_test(prompts_may_stand_in_a_table),
                                       cmocka_unit_test(held_out_prompts_are_compared_with_those_of_training),
                                       cmocka_unit_test(questions_are_prompts_as_published),
                                       cmocka_unit_test(test_bad_prompts),
                                       cmocka_unit_test(test_order_has_each_prompt_once_an_epoch),
                                       cmocka_unit_test(test_programs),
                                       cmocka_unit_test(test_bad_programs),
                                       cmocka_unit_test(test_full_pipes),
                                       cmocka_unit_test(nothing_outlives_a_program),
                                       cmocka_unit_test(other_children_are_left_alone),
                                       cmocka_unit_test(programs_have_limits),
                                       cmocka_unit_test(programs_see_named_variables_only),
                                       cmocka_unit_test(scores_and_observations_are_bounded),
                                       cmocka_unit_test(messages_are_capped),
                                       cmocka_unit_test(a_sandbox_shows_no_network_no_processes_and_no_writable_file),
                                       cmocka_unit_test(test_rewards_are_written_and_replayed),
                                       cmocka_unit_test(test_a_torn_line_is_cut_off),
                                       cmocka_unit_test(test_a_program_that_hangs_costs_a_step),
                                       cmocka_unit_test(test_success_is_of_answers_without_a_hint),
                                       cmocka_unit_test(test_observations_go_on),
                                       cmocka_unit_test(test_observations_end_with_their_turns),
                                       cmocka_unit_test(test_an_answer_forgives_failures),
                                       cmocka_unit_test(test_null_is_no_score)};
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
