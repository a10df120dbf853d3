package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// link matches a link within the repository: a relative path, an anchor, or both.
var link = regexp.MustCompile(`\]\(([^)#:\s]*)(#[^)\s]*)?\)`)

// fence matches a code block.
var fence = regexp.MustCompile("(?ms)^( *)```.*?^ *```$")

// allPages returns the text of each page of the documentation by file name, without code blocks.
func allPages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, pattern := range []string{
		"*.md", "docs/*.md", "docs/*/*.md",
		"pkg/*/README.md", "pkg/*/*/README.md", "pkg/*/*/*/README.md", "pkg/*/*/*/*/README.md", "pkg/*/*/*/*/*/README.md",
	} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			pages[name] = fence.ReplaceAllString(string(text), "")
		}
	}
	if len(pages) < 50 {
		t.Fatalf("found only %d pages, want at least 50", len(pages))
	}
	return pages
}

// TestLinks verifies that each link of a page to a file or an anchor in the repository has a
// target.
func TestLinks(t *testing.T) {
	pages := allPages(t)
	anchors := map[string]map[string]bool{}
	for name, text := range pages {
		anchors[name] = anchorsOf(text)
	}
	for name, text := range pages {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			target := name
			if match[1] != "" {
				target = filepath.Join(filepath.Dir(name), filepath.FromSlash(match[1]))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: no such file", name, match[1])
				continue
			}
			anchor := strings.TrimPrefix(match[2], "#")
			if pageAnchors, ok := anchors[target]; anchor != "" && (!ok || !pageAnchors[anchor]) {
				t.Errorf("%s links to %s: the page has no heading for %q", name, match[0], anchor)
			}
		}
	}
}

// anchorsOf returns the anchors of a page: the anchors that GitHub derives from headings, and
// explicit anchors.
func anchorsOf(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ +(.*?) *$`).FindAllStringSubmatch(text, -1) {
		title := regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(heading[1], "]") // a link: its text
		title = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(title), "")
		anchors[strings.ReplaceAll(title, " ", "-")] = true
	}
	for _, id := range regexp.MustCompile(`<a id="([^"]*)">`).FindAllStringSubmatch(text, -1) {
		anchors[id[1]] = true
	}
	return anchors
}

// TestReadmeListsEveryPage verifies that the documentation section of README.md lists each page of
// docs exactly once.
func TestReadmeListsEveryPage(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## Documentation\n")
	section, _, _ = strings.Cut(section, "\n## ")
	count := map[string]int{}
	for _, entry := range regexp.MustCompile(`(?m)^- \[[^]]*\]\((docs/[^)]*)\):`).FindAllStringSubmatch(section, -1) {
		count[entry[1]]++
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	indexes, err := filepath.Glob(filepath.Join(root, "docs/*/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, indexes...) {
		name, err := filepath.Rel(root, page)
		if err != nil {
			t.Fatal(err)
		}
		if n := count[filepath.ToSlash(name)]; n != 1 {
			t.Errorf("the documentation section of README.md lists %s %d times, want once", name, n)
		}
	}
}

// TestTopicPages verifies that each page about a topic has an example, a way to see that it works,
// a link to the reference and the usual failures. The command's tests check the examples.
func TestTopicPages(t *testing.T) {
	for _, topic := range []string{
		"configuration", "protocols", "routing", "tls", "dns", "balancing", "listeners", "overload",
		"transparent", "dubbo", "security", "xds", "observability",
	} {
		text, err := os.ReadFile(filepath.Join(root, "docs", topic+".md"))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range []string{" config=", "\n## How to see that it works\n", "(reference/", "\n## Troubleshooting\n"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("docs/%s.md does not contain %q", topic, want)
			}
		}
	}
}
