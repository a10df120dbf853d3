package configjson

import (
	"errors"
	"io/fs"
	"testing"
)

func TestReadRelative(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		path  string
		found string
		text  string // "": an error
	}{
		"working directory":     {map[string]string{"a.pem": "here", "conf/a.pem": "there"}, "a.pem", "a.pem", "here"},
		"directory of the file": {map[string]string{"conf/tls/a.pem": "there"}, "tls/a.pem", "conf/tls/a.pem", "there"},
		"absolute":              {map[string]string{"/a.pem": "root"}, "/a.pem", "/a.pem", "root"},
		"missing":               {nil, "a.pem", "a.pem", ""},
		"missing absolute path": {map[string]string{"conf/a.pem": "there"}, "/a.pem", "/a.pem", ""},
	} {
		read := func(name string) (string, error) {
			if text, ok := test.files[name]; ok {
				return text, nil
			}
			return "", &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		found, text, err := readRelative("conf/weft.json", test.path, read)
		if found != test.found || text != test.text || (err == nil) != (test.text != "") {
			t.Errorf("%s: readRelative(%q) = %q, %q, %v, want %q, %q", name, test.path, found, text, err, test.found, test.text)
		}
		if failed := (*fs.PathError)(nil); errors.As(err, &failed) && failed.Path != test.path {
			t.Errorf("%s: the error names %s, want %s", name, failed.Path, test.path)
		}
	}
}
