"""As self_test.py, for the checks of names and of what decides."""

import unittest

import error_texts
import family_names
import joined_texts
import planner_names
import policy_names
import words
from self_test import TreeTest


class PlannerNames(TreeTest):
    def test_each_way_to_name_a_model_or_a_policy(self):
        self.write("models/include/dtk/models/dit_options.h", "")
        self.write("models/include/dtk/models/diffusion_planner_options.h", "")
        for name in ("ema", "attention", "checkpoint", "policy"):
            self.write(f"policies/include/dtk/policies/{name}_options.h", "")
        self.write(
            "policies/planner/core/good.cpp",
            "#include <dtk/policies/memory_ledger.h>\n"
            "#include <dtk/policies/policy_set.h>\n"
            'auto op = "aten::_scaled_dot_product_attention";\nint attention(int remainder);\nint edit;  // not ema\n'
            'auto text = "what checkpointing can save";\n',
        )
        for text in (
            "#include <dtk/policies/ema.h>",
            "#include <dtk/policies/options/attention_options.h>",
            "#include <dtk/models/seam.h>",
            "int ema_bytes;",
            "struct EmaBytes;",
            "const Dit& model;",
            'if (name == "attention") return;',
            "int checkpointed;",
            "struct DiffusionPlanner;",
        ):
            self.assert_finds(
                planner_names, "policies/planner/core/bad.cpp", f"int a;\n{text}\n", "knows no model and no policy"
            )


class FamilyNames(TreeTest):
    def test_a_name_outside_of_the_families_folder(self):
        self.write("toolkit/families/dit/family.cpp", 'const char* name = "dit";\n')
        self.write("toolkit/programs/dit_plan.cpp", 'const char* program = "dit-plan";  // of a dit\n')
        for library in ("policies/ema", "toolkit/train"):
            for text in ('if (model == "dit") return;', "dit::Options options;", "models::DitOptions options;", "int dit_rows;", "#include <dtk/models/dit_options.h>"):
                if library == "policies/ema" and text.startswith("#"):
                    continue  # an arrow's offence
                self.assert_finds(family_names, f"{library}/bad.cpp", f"{text}\n", "ask the family")
        self.assert_finds(family_names, "policies/ema/bad.cpp", "bool lora = false;\n", "names lora")
        self.write("toolkit/families/diffusion_planner/family.cpp", "")
        for text in ("struct DiffusionPlannerRows;", "bool is_diffusion_planner;"):
            self.assert_finds(family_names, "toolkit/train/bad.cpp", f"{text}\n", "ask the family")


class PolicyNames(TreeTest):
    def test_a_policy_is_named_where_the_table_says(self):
        self.write("policies/include/dtk/policies/options/ema_options.h", "")
        self.write("policies/include/dtk/policies/options/own_options.h", "")
        self.write("toolkit/run/out_of_memory.cpp", "bool on = config.policies.ema.enabled;\n")
        self.write("toolkit/config/rules.cpp", "bool on = config.policies.ema.enabled;\n")
        for text in ("if (config.policies.ema.enabled == Enabled::on) {}", 'auto key = "policies.ema.every";', "loaded.policies().ema.every"):
            self.assert_finds(policy_names, "toolkit/run/bad.cpp", f"{text}\n", "names policies.ema")
        self.assert_finds(policy_names, "toolkit/run/out_of_memory.cpp", "", "no longer names policies.ema")

    def test_options_in_a_variable_or_of_a_type(self):
        self.write("policies/include/dtk/policies/options/ema_options.h", "")
        self.write("toolkit/run/out_of_memory.cpp", "const EmaOptions& ema = config.policies.ema;\n")
        self.write("toolkit/families/a/a.cpp", "policies::PolicyOptions& p = config.policies;\np.ema.every = 1;\n")
        for text in (
            "const auto& p = config.policies;\nauto a = p.ema.every;",
            "auto* p = &loaded->config.policies;\nauto a = p->ema.every;",
            "PolicyOptions fp32 = config.policies, p = config.policies;\nauto a = p.ema.every;",
            "void f(const policies::PolicyOptions& p) {\n  g(p.ema.every); }",
            "\nvoid f(EmaOptions& e) { g(e.every); }",
            "\nif (policy.name() == Ema::kName) {}",
            "\npolicies::Ema average;",
        ):
            self.assert_finds(policy_names, "toolkit/run/bad.cpp", f"{text}\n", "bad.cpp:2: names policies.ema")
        self.write("toolkit/run/kept.h", "struct Kept { policies::PolicyOptions options_; };\n")
        self.assert_finds(policy_names, "toolkit/run/kept.cpp", "auto a = options_.ema.every;\n", "names policies.ema")
        self.write("toolkit/run/good.cpp", "const auto& p = config.policies;\nauto a = other.ema.every;\nauto b = kind->enabled(p);\n")
        self.assertEqual(policy_names.check(self.root), [])


class ErrorTexts(TreeTest):
    def find_in(self, *lines: str) -> None:
        self.assert_finds(error_texts, "toolkit/run/bad.cpp", "\n".join(("void f() {", *(f"  {line}" for line in lines), "}", "")), "decide nothing")

    def test_a_text_that_is_asked_itself(self):
        self.find_in('std::string(e.what()).find("gone");')
        self.find_in('std::strstr(e.what(), "gone");')
        self.find_in('if (e.problem.find("cannot hold") != npos) {}')
        self.find_in('if (first_line(e.what()).starts_with("gone")) return;')
        self.find_in('if (std::string(e.what()) == "gone") return;')
        self.find_in("if (known.contains(e.what())) return;")

    def test_a_variable(self):
        for search in (
            'if (text.find("gone") != text.npos) return;',
            'if (text.starts_with("gone")) return;',
            'if (text.ends_with("gone")) return;',
            'if (text.contains("gone")) return;',
            'if (text == "gone") return;',
            'if ("gone" != text) return;',
            'if (std::strcmp(text, "gone") == 0) return;',
            "if (std::regex_search(text, kGone)) return;",
            "if (known.contains(text)) return;",
        ):
            self.find_in("const std::string text = error.what();", search)
        for made in ("std::string text(e.what());", "const std::string text{e.what()};", "const auto text = first_line(e.what());"):
            self.find_in(made, 'return text == "gone";')
        self.find_in("std::string text;", "try {", "} catch (const E& e) {", "  text = e.what();", "}", 'if (text.contains("gone")) return;')
        self.find_in("row.why = e.what();", 'if (row.why.starts_with("gone")) return;')
        self.find_in("const std::string text = e.what();", "const auto lower = lower_case(text);", 'if (lower.contains("gone")) return;')

    def test_a_function_that_takes_it(self):
        taken = 'bool is_gone(const std::string& text) {\n  return text.starts_with("gone");\n}\n'
        self.assert_finds(error_texts, "toolkit/run/bad.cpp", taken + "void f() {\n  if (is_gone(e.what())) return;\n}\n", "bad.cpp:2")
        self.find_in('const auto is_gone = [](std::string_view text) { return text.contains("gone"); };', "if (is_gone(e.what())) return;")

    def test_a_text_that_is_only_said(self):
        self.write(
            "toolkit/run/good.cpp",
            "void f() {\n  const std::string text = e.what();\n  if (other.text == text_of(1) || text.empty()) say(text);\n}\n"
            'void g(const std::string& text) {\n  if (text == "a") return;\n}\n',
        )
        self.assertEqual(error_texts.check(self.root), [])


class JoinedTexts(TreeTest):
    def test_four_parts(self):
        for text in ('fail("a" + b + "c" + d);', "return b + ':' + c\n + \"d\" + e;", 'text += a + b(c, "d") + (e ? "f" : g) + "h";',
                     'f(x, std::string(n, 1) + R"(a\n)" + b + c);', 'throw E("x" + (a + "b" + c + d));'):
            self.assert_finds(joined_texts, "toolkit/run/bad.cpp", f"\n{text}\n", "bad.cpp:2: joins")

    def test_fewer_or_other_parts(self):
        self.write(
            "toolkit/run/good.cpp",
            'f(a + "b" + c, d + "e" + f);\nint n = a + b + c + d; // "a" + b + c + d\n'
            'g(a ? "b" + c + d : "e" + f + g);\nh("a + b + c + d");\nf(g("a") + 1, i + j + k(\'b\') + 1);\n',
        )
        self.write("toolkit/launch/doctor.cpp", 'f(a + "b" + c + "d");\n')
        self.assertEqual(joined_texts.check(self.root), [])


class BrokenPhrases(TreeTest):
    def test_a_phrase_over_the_end_of_a_line(self):
        self.assert_finds(words, "toolkit/run/bad.cpp", "\n// What backward computes\n  // again is freed.\n", "bad.cpp:2: computes again")
        self.assert_finds(words, "toolkit/run/README.md", "A block is computed\nagain.\n", "README.md:1: computed again")
        self.write("toolkit/run/good.cpp", "// It computes.\n\n// Again.\nint computes;\nint again;\n")
        self.assertEqual(words.check(self.root), [])


class HiddenChoices(TreeTest):
    def test_a_constant_of_the_file(self):
        for constant in ('constexpr std::string_view kCosine = "cosine";', 'constexpr char kLinear[] = "linear", kCosine[] = "cosine";',
                         'static const std::string kCosine{"cosine"};', 'constexpr const char* kCosine = "cosine";'):  # fmt: skip
            for text in ("if (schedule.kind == kCosine) {}", "if (kCosine != schedule.kind) {}"):
                self.assert_finds(words, "toolkit/run/bad.cpp", f"{constant}\nvoid f() {{\n  {text}\n}}\n", "enum")
        self.write("toolkit/run/good.cpp", 'constexpr char kHead[] = "head";\nbool a = name == kHead, b = key == kHead + rest, c = n == kCount;\n')
        self.assertEqual(words.check(self.root), [])

    def test_whose_name_it_is(self):
        self.write("policies/include/dtk/policies/options/ema_options.h", "")
        self.write("toolkit/families/dit/family.cpp", "")
        for text in ('if (policy->name() == "ema") {}', 'if (family.name() != "dit") {}', 'if ("ema" == policy->name()) {}', "if (policy->name() == policies::Ema::kName) {}"):
            for path in ("toolkit/run/bad.cpp", "examples/bad.cpp"):
                self.assert_finds(words, path, f"{text}\n", "its kind")
        self.write("toolkit/run/good.cpp", 'if (argument.name() == "out" || kind->name() == name) {}\n')
        self.assertEqual(words.check(self.root), [])


class MoreWords(TreeTest):
    def test_limits(self):
        for path in ("tests/bad.cpp", "benchmarks/bad.cpp", "examples/bad.cpp"):
            self.assert_finds(words, path, "double least = 1;\n", "lowest")
        for text in ("LEAST_PAIRS = 21", "if pairs < LEAST_PAIRS: pass", "MOST_LINES = 3", "def f(least=0): pass"):
            for path in ("benchmarks/bad.py", "tests/bad.py", "examples/bad.py"):
                self.assert_finds(words, path, f"a = 1\n{text}\n", "bad.py:2")
        self.write("benchmarks/good.py", 'said = f"at least {MIN_PAIRS}"  # the least\nlist = [said["least"]]\n')
        self.assertEqual(words.check(self.root), [])

    def test_others(self):
        self.assert_finds(words, "toolkit/run/bad.cpp", "if (policies::simulating ()) return;\n", "keeps_content")
        self.assert_finds(words, "toolkit/run/bad.cpp", "void f(const std::map<std::string, std::string>& places);\n", "locations")

    def test_the_planner_in_documents(self):
        for path in ("README.md", "benchmarks/results/cpu.md", "CHANGELOG.md"):
            self.assert_finds(words, path, "# A\n\nThe planner drives a car.\n", "planner is memory planning")
        self.assert_finds(words, "toolkit/plan/README.md", "The planner of a job\nfollows its route.\n", "planner is memory planning")
        self.assert_finds(words, "policies/README.md", "A car has a planner.\n", "planner is memory planning")
        self.write("toolkit/plan/README.md", "The planner counts bytes. A car: Diffusion-Planner.\n\nRoutes: [a](../../policies/planner/a.h)\n")
        self.write("README.md", "Diffusion-Planner, the driving model; `dtk::planner` plans memory ([a](tests/planner/a.cpp)).\n")
        self.assertEqual(words.check(self.root), [])

    def test_what_describes_results_and_corpora(self):
        self.assert_finds(words, "tests/fuzz/corpus/configuration/bad.toml", "# the driving planner\n", "driving model")
        self.assert_finds(words, "benchmarks/results/bad.md", "it computes the rest again\n", "recompute")
        self.write("tests/fuzz/corpus/configuration/good", "the driving planner\n")
        self.assertEqual(words.check(self.root), [])


if __name__ == "__main__":
    unittest.main()
