package example

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// shown is a block of the page that says which file it is of.
var shown = regexp.MustCompile("(?ms)^```go file=pkg/protocol/xprotocol/codectest/example/(\\S+)\n(.*?)^```$")

// docs/add-a-protocol.md shows the code as it is: all of the codec, in order, and
// parts of its tests.
func TestThePageShowsThisCode(t *testing.T) {
	const page = "../../../../../docs/add-a-protocol.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	whole := map[string]string{}
	for _, found := range shown.FindAllSubmatch(text, -1) {
		name, code := string(found[1]), string(found[2])
		if name != path.Base(name) {
			t.Fatalf("%s shows %s", page, name)
		}
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(file), code) {
			t.Errorf("%s shows of %s what is not there:\n%s", page, name, code)
		}
		if whole[name] != "" {
			whole[name] += "\n"
		}
		whole[name] += code
	}
	for _, name := range []string{"codec.go", "fields.go"} {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if whole[name] != string(file) {
			t.Errorf("%s does not show all of %s, in order", page, name)
		}
	}
	for _, name := range []string{"codec_test.go", "weft_test.go"} {
		if whole[name] == "" {
			t.Errorf("%s shows nothing of %s", page, name)
		}
	}
	if blocks := strings.Count(string(text), "```go"); blocks != len(shown.FindAll(text, -1)) {
		t.Errorf("%s has %d blocks of Go, and not all say which file they are of", page, blocks)
	}
}
