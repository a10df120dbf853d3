package http2

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

func newDecoder() *decoder {
	d := &decoder{maxListSize: unlimited, maxFields: 1 << 30, maxTableSize: DefaultTableSize}
	d.table.max = DefaultTableSize
	return d
}

func blockText(d *decoder) string {
	var s strings.Builder
	for i := range d.fields {
		fmt.Fprintf(&s, "%s: %s\n", d.fields[i].name, d.fields[i].value)
	}
	return s.String()
}

// TestStaticTable verifies every entry of the static table against x/net's decoder, and the index
// that staticNameIndex returns for each name that the encoder sends.
func TestStaticTable(t *testing.T) {
	reference := hpack.NewDecoder(DefaultTableSize, nil)
	for i := uint32(1); i <= staticTableLen; i++ {
		want, err := reference.DecodeFull(appendIndex(nil, i))
		if err != nil {
			t.Fatal(err)
		}
		if staticTable[i].name != want[0].Name || staticTable[i].value != want[0].Value {
			t.Errorf("static entry %d is %s: %s, want %v", i, staticTable[i].name, staticTable[i].value, want[0])
		}
		if k := staticTable[i].kind; k.isPseudo() || k == hostField || k == connectionField {
			continue
		}
		if index := staticNameIndex(staticTable[i].name); index != uint64(i) {
			t.Errorf("staticNameIndex(%q) = %d, want %d", staticTable[i].name, index, i)
		}
	}
}

// TestDecodeSequences verifies the examples of RFC 7541 C.3, C.4 and C.6.
func TestDecodeSequences(t *testing.T) {
	cases := []struct {
		name   string
		table  uint32
		blocks []string
		want   string // fields of the last block
		size   uint32
	}{
		{"requests without Huffman codes", 4096, []string{
			"828684410f7777772e6578616d706c652e636f6d",
			"828684be58086e6f2d6361636865",
			"828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
		}, ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value\n", 164},
		{"requests with Huffman codes", 4096, []string{
			"828684418cf1e3c2e5f23a6ba0ab90f4ff",
			"828684be5886a8eb10649cbf",
			"828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
		}, ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value\n", 164},
		{"responses with eviction", 256, []string{
			"488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
			"4883640effc1c0bf",
			"88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
		}, ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\nlocation: https://www.example.com\ncontent-encoding: gzip\nset-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n", 215},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := newDecoder()
			d.table.max = c.table
			for _, text := range c.blocks {
				block, err := hex.DecodeString(text)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.decode(block); err != nil {
					t.Fatalf("decode(%s): %v", text, err)
				}
			}
			if got := blockText(d); got != c.want || d.table.size != c.size {
				t.Fatalf("last block\n%stable size %d, want\n%stable size %d", got, d.table.size, c.want, c.size)
			}
		})
	}
}

func TestDecodeRejectsMalformedBlocks(t *testing.T) {
	cases := []struct {
		name, block string
		want        error
	}{
		{"index 0", "80", errIndex},
		{"index above both tables", "be", errIndex},
		{"name index above both tables", "7f0000", errIndex},
		{"truncated index", "ff", errTruncated},
		{"integer of six bytes", "ffffffffffff01", errInteger},
		{"integer above 2^31", "ff8080808008", errInteger},
		{"literal without its name", "40", errTruncated},
		{"truncated name", "400561", errTruncated},
		{"literal without its value", "400161", errTruncated},
		{"truncated value", "4001610262", errTruncated},
		{"length above the number of bytes", "40ffffffff07", errTruncated},
		{"Huffman code with EOS", "408161" + "84ffffffff", errHuffman},
		{"Huffman padding of more than seven bits", "4082" + "1fff" + "0161", errHuffman},
		{"table size above the maximum", "3fe21f", errSizeUpdate},
		{"table size after a field", "8220", errSizeUpdate},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			block, err := hex.DecodeString(c.block)
			if err != nil {
				t.Fatal(err)
			}
			if err := newDecoder().decode(block); err != c.want {
				t.Fatalf("decode(%s) = %v, want %v", c.block, err, c.want)
			}
		})
	}
}

// TestSmallerTableRequiresSizeUpdate verifies that the next block must start with a size update
// after the peer has acknowledged a smaller table.
func TestSmallerTableRequiresSizeUpdate(t *testing.T) {
	d := newDecoder()
	d.setMaxTableSize(100)
	if err := d.decode([]byte{0x82}); err != errSizeUpdate {
		t.Fatalf("a block without the new size: %v, want %v", err, errSizeUpdate)
	}
	d = newDecoder()
	d.setMaxTableSize(100)
	if err := d.decode(append(appendInteger(nil, 0x20, 5, 100), 0x82)); err != nil {
		t.Fatalf("a block with the new size: %v", err)
	}
	if err := d.decode(appendInteger(nil, 0x20, 5, 101)); err != errSizeUpdate {
		t.Fatalf("a larger size: %v, want %v", err, errSizeUpdate)
	}
}

// TestDecodeLimits verifies that fields beyond a limit are decoded and added to the table, but not
// to decoder.fields.
func TestDecodeLimits(t *testing.T) {
	block := []byte{0x40, 1, 'a', 1, '1', 0x40, 1, 'b', 1, '2', 0x40, 1, 'c', 1, '3'}
	for _, c := range []struct {
		name      string
		limit     uint32
		maxFields int
		kept      int
	}{
		{"within both limits", 102, 3, 3},
		{"too many bytes", 101, 3, 2},
		{"too many fields", 102, 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDecoder()
			d.maxListSize, d.maxFields = c.limit, c.maxFields
			if err := d.decode(block); err != nil {
				t.Fatal(err)
			}
			if len(d.fields) != c.kept || d.tooLarge != (c.kept < 3) || d.size != 102 {
				t.Fatalf("kept %d of %d bytes, too large: %v, want %d of 102", len(d.fields), d.size, d.tooLarge, c.kept)
			}
			if d.table.n != 3 {
				t.Fatalf("table has %d entries, want 3", d.table.n)
			}
		})
	}
}

// TestEncoderIndexesRepeatedFields verifies that a field is added to the table when it is encoded
// for the second time, and takes one byte from the third time on.
func TestEncoderIndexesRepeatedFields(t *testing.T) {
	e := &encoder{max: DefaultTableSize}
	var sizes []int
	for range 4 {
		sizes = append(sizes, len(e.appendField(nil, 0, "x-tenant", "blue")))
	}
	if want := "[15 15 1 1]"; fmt.Sprint(sizes) != want {
		t.Fatalf("encoded sizes %v, want %s", sizes, want)
	}
	name := string([]byte("x-id"))
	for i := range 100 {
		e.appendField(nil, 0, name, fmt.Sprint(i))
	}
	if e.n != 1 {
		t.Fatalf("table has %d entries, want 1: values that do not recur are not added", e.n)
	}
}

func TestEncoderCopiesStrings(t *testing.T) {
	e := &encoder{max: DefaultTableSize}
	text := []byte("value")
	for range 3 {
		e.appendField(nil, 0, "name", unsafeString(text))
	}
	copy(text, "other")
	if b := e.appendField(nil, 0, "name", "value"); len(b) != 1 {
		t.Fatalf("the field is encoded as %x, want an index", b)
	}
}

// TestEncodeDecodeRoundTrip verifies that x/net's decoder and ours decode random blocks correctly
// with changing table sizes.
func TestEncodeDecodeRoundTrip(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	e := &encoder{max: DefaultTableSize}
	d := newDecoder()
	reference := hpack.NewDecoder(DefaultTableSize, nil)
	for range 2000 {
		if random.IntN(20) == 0 {
			for range 1 + random.IntN(2) {
				e.setMaxSize(uint32(random.IntN(5000)))
			}
		}
		block := e.appendSizeUpdates(nil)
		var want strings.Builder
		for range random.IntN(12) {
			name := fmt.Sprintf("name-%d", random.IntN(30))
			value := strings.Repeat(fmt.Sprint(random.IntN(8)), random.IntN(90))
			block = e.appendField(block, 0, name, value)
			fmt.Fprintf(&want, "%s: %s\n", name, value)
		}
		if err := d.decode(block); err != nil || blockText(d) != want.String() {
			t.Fatalf("%x is decoded as\n%s%v, want\n%s", block, blockText(d), err, want.String())
		}
		fields, err := reference.DecodeFull(block)
		if text := headerFieldsText(fields); err != nil || text != want.String() {
			t.Fatalf("x/net decodes %x as\n%s%v, want\n%s", block, text, err, want.String())
		}
		if e.size > e.max || e.size != d.table.size {
			t.Fatalf("encoder's table has %d bytes, want at most %d and as many as the decoder's, %d", e.size, e.max, d.table.size)
		}
	}
}

func headerFieldsText(fields []hpack.HeaderField) string {
	var s strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&s, "%s: %s\n", f.Name, f.Value)
	}
	return s.String()
}

// FuzzDecode verifies that our decoder and x/net's agree on every block, and on a second block that
// may refer to the table entries of the first. Our decoder may only be stricter, as the RFC allows.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		"828684418cf1e3c2e5f23a6ba0ab90f4ff", "828684be5886a8eb10649cbf", "400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
		"3fe11f82", "203fe11f82", "100870617373776f726406736563726574", "ff80808008",
	} {
		b, _ := hex.DecodeString(text)
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		d := newDecoder()
		reference := hpack.NewDecoder(DefaultTableSize, nil)
		for _, block := range [][]byte{first, second} {
			err := d.decode(block)
			fields, referenceErr := reference.DecodeFull(block)
			if err == nil && referenceErr != nil {
				t.Fatalf("decode(%x) = %q, want an error, as x/net's: %v", block, blockText(d), referenceErr)
			}
			if err == errInteger || err == errSizeUpdate {
				// x/net accepts larger integers (RFC 7541 5.1), and size updates after a field if
				// its table is empty (4.2).
				return
			}
			if (err == nil) != (referenceErr == nil) {
				t.Fatalf("decode(%x): error %v, want as x/net's: %v", block, err, referenceErr)
			}
			if err != nil {
				return
			}
			if got, want := blockText(d), headerFieldsText(fields); got != want {
				t.Fatalf("decode(%x) = %q, want %q as x/net's", block, got, want)
			}
			if d.table.size > d.table.max {
				t.Fatalf("table of %d bytes, want at most %d", d.table.size, d.table.max)
			}
		}
	})
}

// TestDecodeBlocksOfXNet verifies that blocks of x/net's encoder are decoded, Huffman codes
// included.
func TestDecodeBlocksOfXNet(t *testing.T) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	d := newDecoder()
	for range 3 {
		b.Reset()
		for _, f := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"},
			{Name: "user-agent", Value: "grpc-go/1.80.0"},
			{Name: "authorization", Value: "Bearer x", Sensitive: true},
		} {
			if err := e.WriteField(f); err != nil {
				t.Fatal(err)
			}
		}
		const want = ":method: POST\nuser-agent: grpc-go/1.80.0\nauthorization: Bearer x\n"
		if err := d.decode(b.Bytes()); err != nil || blockText(d) != want {
			t.Fatalf("%x is decoded as %q, %v, want %q", b.Bytes(), blockText(d), err, want)
		}
	}
}

// FuzzEncode verifies that our decoder decodes the blocks of both encoders, and that x/net's
// decoder decodes our blocks. Each line of blocks is a field, and an empty line ends a block. Each
// block consumes one byte of sizes.
func FuzzEncode(f *testing.F) {
	f.Add("a: b\na: b\n\na: b\na: c", []byte{255, 0, 16})
	f.Add(":path: /x\ncookie: long enough to be added to it\n\ncookie: long enough to be added to it\n\n: ", []byte{1, 0, 200, 9})
	f.Fuzz(func(t *testing.T, blocks string, sizes []byte) {
		e := &encoder{max: DefaultTableSize}
		var referenceBlock bytes.Buffer
		referenceEncoder := hpack.NewEncoder(&referenceBlock)
		reference := hpack.NewDecoder(DefaultTableSize, nil)
		decoders := [2]*decoder{newDecoder(), newDecoder()}
		for text := range strings.SplitSeq(blocks, "\n\n") {
			if len(sizes) > 0 {
				size := uint32(sizes[0]) * 16
				sizes = sizes[1:]
				e.setMaxSize(size)
				referenceEncoder.SetMaxDynamicTableSize(size)
			}
			referenceBlock.Reset()
			block := e.appendSizeUpdates(nil)
			var lines strings.Builder
			for line := range strings.SplitSeq(text, "\n") {
				name, value, _ := strings.Cut(line, ": ")
				fmt.Fprintf(&lines, "%s: %s\n", name, value)
				block = e.appendField(block, uint32(staticNameIndex(name)), name, value)
				if err := referenceEncoder.WriteField(hpack.HeaderField{Name: name, Value: value}); err != nil {
					t.Fatal(err)
				}
			}
			want := lines.String()
			fields, err := reference.DecodeFull(block)
			if got := headerFieldsText(fields); err != nil || got != want {
				t.Fatalf("x/net decodes %x as %q, %v, want %q", block, got, err, want)
			}
			for i, b := range [][]byte{block, referenceBlock.Bytes()} {
				if err := decoders[i].decode(b); err != nil || blockText(decoders[i]) != want {
					t.Fatalf("%x is decoded as %q, %v, want %q", b, blockText(decoders[i]), err, want)
				}
			}
			if e.size != decoders[0].table.size || e.size > e.max || uint32(e.n) != uint32(decoders[0].table.n) {
				t.Fatalf("the encoder's table has %d bytes, want at most %d and as many as the decoder's, %d", e.size, e.max, decoders[0].table.size)
			}
		}
	})
}
