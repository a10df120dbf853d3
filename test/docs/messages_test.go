package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMessagesOnPagesExist verifies that the code contains the messages in the "Troubleshooting"
// tables: three words in a row of each message must occur in a non-test Go file.
func TestMessagesOnPagesExist(t *testing.T) {
	external := map[string]bool{ // messages of the system or of Go's resolver, and messages with fewer than three fixed words
		"lookup app.test on 127.0.0.1:53: no such host": true,
		"network is unreachable":                        true,
		"operation not permitted":                       true,
		"service.methods: is missing":                   true,
	}
	source := goSource(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		_, section, _ := strings.Cut(string(text), "\n## Troubleshooting\n")
		section, _, _ = strings.Cut(section, "\n## ")
		for _, row := range regexp.MustCompile(`(?m)^\| (.*?) \| `).FindAllStringSubmatch(section, -1) {
			for _, message := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(row[1], -1) {
				if strings.Count(message[1], " ") < 2 || external[message[1]] {
					continue
				}
				count++
				if !containsThreeWords(source, message[1]) {
					t.Errorf("%s: the code has no message like %q", page, message[1])
				}
			}
		}
	}
	if count < 30 {
		t.Errorf("found only %d messages, want at least 30", count)
	}
}

func containsThreeWords(source, message string) bool {
	words := strings.Fields(message)
	for i := range len(words) - 2 {
		if strings.Contains(source, strings.Join(words[i:i+3], " ")) {
			return true
		}
	}
	return false
}

// goSource returns the text of all non-test Go files, with strings that span lines joined.
func goSource(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range []string{"cmd", "internal", "pkg"} {
		if err := filepath.WalkDir(filepath.Join(root, dir), func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			b.Write(text)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	joined := regexp.MustCompile(`" \+\s*"`).ReplaceAllString(b.String(), "")
	return strings.ReplaceAll(joined, `\"`, `"`)
}
