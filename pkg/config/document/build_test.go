package document

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// object returns an object of alternating keys and values.
func object(keysAndValues ...any) *Value {
	out := NewObject(len(keysAndValues) / 2)
	for i := 0; i < len(keysAndValues); i += 2 {
		out.Set(keysAndValues[i].(string), keysAndValues[i+1].(*Value))
	}
	return out
}

func TestBuildEqualsParse(t *testing.T) {
	shared := object("x", NewNumber("1.5"))
	for text, v := range map[string]*Value{
		`null`:                    NewNull(),
		`true`:                    NewBool(true),
		`false`:                   NewBool(false),
		`-1e-7`:                   NewNumber("-1e-7"),
		`""`:                      NewString(""),
		`"\"$${A}\n\u00e9\u0000"`: NewString("\"${A}\n\u00e9\x00"),
		`[]`:                      NewList(),
		`{}`:                      NewObject(0),
		`[[], {}, "a", [1]]`:      NewList(NewList(), NewObject(3), NewString("a"), NewList(NewNumber("1"))),
		`{"": {"a": "", "B": null}, "\"": [{}], "x": {"x": 1.5}, "y": {"x": 1.5}}`: object(
			"", object("a", NewString(""), "B", NewNull()), `"`, NewList(NewObject(0)), "x", shared, "y", shared,
		),
	} {
		var buildReport, parseReport Report
		got := Build("f", v, &buildReport)
		want := Parse("f", []byte(text), Options{Format: JSON}, &parseReport)
		if len(buildReport.Diagnostics())+len(parseReport.Diagnostics()) > 0 {
			t.Errorf("%s: Build reports %v, Parse reports %v; want nothing", text, buildReport.Diagnostics(), parseReport.Diagnostics())
		}
		if diff := cmp.Diff(want.Value(), got.Value()); diff != "" || got.Kind() != want.Kind() {
			t.Errorf("%s: -want +got:\n%s", text, diff)
		}
		if g, w := outline(got), outline(want); g != w {
			t.Errorf("Build = %s, want %s", g, w)
		}
	}
}

// outline describes a node and its members: key, path, kind and text.
func outline(n Node) string {
	var b strings.Builder
	b.WriteString(n.Key() + " at " + n.Path() + " is " + n.Kind().String() + " " + n.Text() + "\n")
	for member := range n.All() {
		b.WriteString(outline(member))
	}
	return b.String()
}

// TestBuildDiagnosticOrder verifies that diagnostics have the order of the values, and that
// diagnostics of an object precede those of its members.
func TestBuildDiagnosticOrder(t *testing.T) {
	v := object(
		"\n", NewString("\n"), "labels", object("a\"", NewNumber("1")), "weight", NewNumber("-1"),
		"list", NewList(object("tries", NewNumber("9"), "", NewString("")), NewString("\"")), "ratio", NewString(""), "RATIO", NewNumber("1"),
	)
	var target settings
	var r Report
	NewDecoder(&r).Decode(Build("f", v, &r), &target)
	want := []string{
		`: the key "name" is missing: expected a string like "a"`,
		"[\"\\n\"]: unknown key \"\\n\"",
		`labels["a\""]: found the number 1, expected a string`,
		`weight: found the number -1, expected an integer from 0 to 255`,
		`list[0].tries: found the number 9, expected an integer from 1 to 5`,
		`list[0][""]: unknown key ""`,
		`list[1]: found the string "\"", expected an object`,
		`ratio: found the string "", expected a number from 0 to 1`,
		`RATIO: duplicate key "RATIO": it is already defined on line 1`,
	}
	var got []string
	for _, d := range r.Diagnostics() {
		if d.File != "f" || d.Line != 1 {
			t.Errorf("position of %v, want line 1 of f", d)
		}
		got = append(got, d.Path+": "+d.Text())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diagnostics, -want +got:\n%s", diff)
	}
}

func TestBuildMaxDepth(t *testing.T) {
	for levels, want := range map[int]string{maxDepth: "", maxDepth + 1: "more than 200 levels of nesting"} {
		v := NewList()
		for range levels - 1 {
			v = NewList(v)
		}
		var r Report
		n := Build("f", v, &r)
		diags := r.Diagnostics()
		if want == "" && (len(diags) > 0 || n.Kind() != Array) {
			t.Errorf("%d levels: diagnostics %v, want none", levels, diags)
		}
		if want != "" && (len(diags) != 1 || diags[0].Path+diags[0].Text() != want || n != Node{}) {
			t.Errorf("%d levels: diagnostics %v, want %q", levels, diags, want)
		}
	}
}

func TestValueMutation(t *testing.T) {
	v := object("c", NewString("1"), "a", NewBool(true), "b", NewList(object("z", NewNull(), "y", NewNull())))
	v.Set("c", NewString("2"))
	v.Delete("a")
	v.Delete("none")
	v.Set("d", NewBool(false))
	v.SortKeys()
	want := `{"b": [{"y": null, "z": null}], "c": "2", "d": false}`
	var r Report
	if got := outline(Build("", v, &r)); got != outline(Parse("", []byte(want), Options{}, &r)) {
		t.Errorf("value\n%s, want %s", got, want)
	}
	var keys []string
	for key, member := range v.Members() {
		keys = append(keys, key)
		for i := range member.Elements() {
			keys = append(keys, strings.Repeat("i", i+1))
		}
	}
	if diff := cmp.Diff([]string{"b", "i", "c", "d"}, keys); diff != "" {
		t.Errorf("keys, -want +got:\n%s", diff)
	}
	if v.Get("C") != nil || v.Get("c").Text() != "2" || v.Get("c").Len() != 0 || v.Len() != 3 {
		t.Errorf("Get(C) = %v, Get(c) = %q, Len() = %d; want nil, 2, 3", v.Get("C"), v.Get("c").Text(), v.Len())
	}
}

func TestAbsentValues(t *testing.T) {
	var absent *Value
	absent.Delete("a")
	for range absent.Members() {
		t.Error("an absent value has members")
	}
	for range absent.Elements() {
		t.Error("an absent value has elements")
	}
	if absent.Get("a").Get("b").Kind() != Invalid || absent.Text() != "" || absent.Len() != 0 {
		t.Error("an absent value has content")
	}
}

func TestNewNumberPanicsOnInvalidText(t *testing.T) {
	for _, text := range []string{"", "NaN", "01", "1.", `"1"`} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("NewNumber(%q) returns, want a panic", text)
				}
			}()
			NewNumber(text)
		}()
	}
}
