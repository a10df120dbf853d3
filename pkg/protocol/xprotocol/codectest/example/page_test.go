package example

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// codeBlock matches a block of the page that names its file.
var codeBlock = regexp.MustCompile("(?ms)^```go file=pkg/protocol/xprotocol/codectest/example/(\\S+)\n(.*?)^```$")

// TestPageShowsThisCode verifies that docs/add-a-protocol.md contains the whole codec, in order,
// and parts of its tests.
func TestPageShowsThisCode(t *testing.T) {
	const page = "../../../../../docs/add-a-protocol.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, block := range codeBlock.FindAllSubmatch(text, -1) {
		name, code := string(block[1]), string(block[2])
		if name != path.Base(name) {
			t.Fatalf("%s shows %s", page, name)
		}
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(file), code) {
			t.Errorf("%s shows code that %s does not contain:\n%s", page, name, code)
		}
		if shown[name] != "" {
			shown[name] += "\n"
		}
		shown[name] += code
	}
	for _, name := range []string{"codec.go", "fields.go"} {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if shown[name] != string(file) {
			t.Errorf("%s does not show all of %s, in order", page, name)
		}
	}
	for _, name := range []string{"codec_test.go", "weft_test.go"} {
		if shown[name] == "" {
			t.Errorf("%s does not show any part of %s", page, name)
		}
	}
	if blocks := strings.Count(string(text), "```go"); blocks != len(codeBlock.FindAll(text, -1)) {
		t.Errorf("%s has %d Go blocks, of which some do not name their file", page, blocks)
	}
}
