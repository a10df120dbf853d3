package main

import (
	"os"
	"slices"
	"testing"
)

const smaps = `00400000-00b00000 r-xp 00000000 fe:00 12 /usr/bin/weft
Size:               7168 kB
Rss:                6964 kB
Anonymous:             0 kB
00b00000-01400000 r--p 00700000 fe:00 12 /usr/bin/weft
Rss:                 100 kB
Anonymous:             0 kB
01400000-01500000 rw-p 01000000 fe:00 12 /usr/bin/weft
Rss:                 340 kB
Anonymous:             0 kB
01500000-01600000 r--p 01100000 fe:00 12 /usr/bin/weft
Rss:                  64 kB
Anonymous:             8 kB
01600000-01700000 r--s 01100000 fe:00 12 /usr/bin/weft
Rss:                  64 kB
Anonymous:             0 kB
7f0000000000-7f0000100000 r-xp 00000000 fe:00 13 /usr/lib/libc.so.6
Rss:                 756 kB
Anonymous:             0 kB
7f0000200000-7f0000300000 rw-p 00000000 00:00 0
Rss:                 756 kB
Anonymous:           756 kB
`

func TestProgramMappings(t *testing.T) {
	mappings, resident, err := programMappings([]byte(smaps), "/usr/bin/weft")
	// Mappings that are writable, modified, shared or of another file are not included.
	if want := []mapping{{0x400000, 0xb00000}, {0xb00000, 0x1400000}}; !slices.Equal(mappings, want) || err != nil {
		t.Errorf("mappings %x, %v, want %x", mappings, err, want)
	}
	if want := int64(7064 << 10); resident != want {
		t.Errorf("%d bytes are resident, want %d", resident, want)
	}
	if mappings, _, err := programMappings([]byte(smaps), "/usr/bin/other"); len(mappings) > 0 || err != nil {
		t.Errorf("mappings of another program: %x, %v, want none", mappings, err)
	}
	for _, malformed := range []string{
		"xyz-00b00000 r-xp 0 fe:00 12 /usr/bin/weft\n", "00b00000-00400000 r-xp 0 fe:00 12 /usr/bin/weft\n",
		"00400000-00b00000 r-xp 0 fe:00 12 /usr/bin/weft\nRss: many kB\n",
	} {
		if _, _, err := programMappings([]byte(malformed), "/usr/bin/weft"); err == nil {
			t.Errorf("%q is accepted, want an error", malformed)
		}
	}
}

// TestDropProgramPages verifies that the program continues after its pages were dropped.
func TestDropProgramPages(t *testing.T) {
	dropped, err := dropProgramPages()
	if err != nil || dropped < 1<<20 {
		t.Fatalf("dropProgramPages dropped %d bytes, error %v; want at least 1 MiB and no error", dropped, err)
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	if _, remaining, err := programMappings(table, program); err != nil || remaining >= dropped {
		t.Errorf("after dropProgramPages %d bytes are resident, error %v; want fewer than %d and no error", remaining, err, dropped)
	}
}
