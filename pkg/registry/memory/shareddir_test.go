package memory

import "testing"

func FuzzParseURLs(f *testing.F) {
	f.Add([]byte(fileHeader + "\ndubbo%3A%2F%2F10.0.0.1%3A1%2Fx\n"))
	f.Add([]byte(fileHeader + "\n%zz\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		records, err := parseURLs(text)
		if err != nil && records != nil {
			t.Errorf("parseURLs returned %d records and the error %v, want no records", len(records), err)
		}
	})
}
