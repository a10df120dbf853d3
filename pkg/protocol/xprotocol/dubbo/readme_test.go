package dubbo

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
)

// TestReadmeTables verifies that the tables of README.md match the code.
func TestReadmeTables(t *testing.T) {
	var statuses, errorResponses, serializationTable strings.Builder
	statuses.WriteString("| status | HTTP |\n|---|---|\n")
	for code := range 256 {
		if status := httpStatus(byte(code)); status != 500 {
			fmt.Fprintf(&statuses, "| %d | %d |\n", code, status)
		}
	}
	statuses.WriteString("| any other | 500 |\n")
	errorResponses.WriteString("| reason | status | text |\n|---|---|---|\n")
	for reason := range protocol.Reasons() {
		spec := reason.Spec()
		fmt.Fprintf(&errorResponses, "| `%s` | %d | `%d\\|…` |\n", spec.Name, spec.Dubbo, spec.HTTP)
	}
	serializationTable.WriteString("| id | name |\n|---|---|\n")
	for id, name := range serializations {
		if name != strconv.Itoa(id) {
			fmt.Fprintf(&serializationTable, "| %d | `%s` |\n", id, name)
		}
	}
	serializationTable.WriteString("| any other | the number |\n")

	readme := readReadme(t)
	for section, table := range map[string]string{"statuses": statuses.String(), "errors": errorResponses.String(), "serializations": serializationTable.String()} {
		begin, end := "<!-- begin "+section+" -->\n", "<!-- end "+section+" -->\n"
		before, remainder, found := strings.Cut(readme, begin)
		got, after, foundEnd := strings.Cut(remainder, end)
		if !found || !foundEnd {
			t.Fatalf("README.md has no section %s", section)
		}
		if got != "\n"+table+"\n" {
			t.Errorf("README.md has the table %s\n%swant\n%s", section, got, table)
		}
		readme = before + begin + "\n" + table + "\n" + end + after
	}
	if *update {
		if err := os.WriteFile("README.md", []byte(readme), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadmeExample verifies that the example of README.md matches the capture that it names.
func TestReadmeExample(t *testing.T) {
	r := readRequest(t, findCapture(t, "03-request-user-attachment"))
	var want strings.Builder
	fmt.Fprintf(&want, "```\n%s, of %d bytes, within %v\n", r.Path, r.ContentLength, r.view.Timeout)
	for name, value := range r.Header.All() {
		fmt.Fprintf(&want, "%s: %s\n", name, value)
	}
	want.WriteString("```\n")
	if !strings.Contains(readReadme(t), want.String()) {
		t.Errorf("README.md has no example\n%s", &want)
	}
}

func readReadme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
