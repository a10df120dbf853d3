package basicauth

import (
	"crypto/sha1" //nolint:gosec // the format of htpasswd
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
)

// load reads the users of c.
func (c *Users) load() (users, error) {
	text := c.Inline
	switch {
	case (c.Inline == "") == (c.Filename == ""):
		return nil, errors.New("users: expected one of inline_string and filename")
	case c.Filename != "":
		content, err := os.ReadFile(c.Filename)
		if err != nil {
			return nil, fmt.Errorf("users: %w", err)
		}
		text = string(content)
	}
	u, err := parseUsers(text)
	if err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	return u, nil
}

// parseUsers parses the lines of an htpasswd file. It skips empty lines and comments. Its errors
// contain no name and no hash.
func parseUsers(text string) (users, error) {
	u := users{}
	line := 0
	for entry := range strings.Lines(text) {
		line++
		entry = strings.TrimRight(entry, "\r\n")
		if entry == "" || entry[0] == '#' {
			continue
		}
		name, hash, ok := strings.Cut(entry, ":")
		if !ok || name == "" {
			return nil, fmt.Errorf("line %d: expected a name, a colon and a hash", line)
		}
		encoded, isSHA := strings.CutPrefix(hash, "{SHA}")
		if !isSHA {
			return nil, fmt.Errorf("line %d: only hashes of the form {SHA}HASH are supported: use htpasswd -s", line)
		}
		sum, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(sum) != sha1.Size {
			return nil, fmt.Errorf("line %d: the text after {SHA} is not a SHA-1 hash in base64", line)
		}
		if _, exists := u[name]; exists {
			return nil, fmt.Errorf("line %d: the user has an earlier line", line)
		}
		u[name] = [sha1.Size]byte(sum)
	}
	if len(u) == 0 {
		return nil, errors.New("there is no user")
	}
	return u, nil
}
