package demand

import (
	"slices"
	"testing"
)

func TestANameIsTakenOnceHoweverOftenItIsAskedFor(t *testing.T) {
	d := NewDesk()
	for _, name := range []string{"b", "a", "b"} {
		d.Ask(name)
	}
	<-d.Asked()
	if got, want := d.Take(), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("Take() = %v, want %v", got, want)
	}
	if got := d.Take(); len(got) != 0 {
		t.Errorf("Take() = %v the second time, want nothing", got)
	}
	d.Ask("c")
	<-d.Asked()
	if got, want := d.Take(), []string{"c"}; !slices.Equal(got, want) {
		t.Errorf("Take() = %v, want %v", got, want)
	}
}

func TestUseIsToldOnce(t *testing.T) {
	var i Item
	if i.Used() {
		t.Error("Used() = true before Use()")
	}
	i.Use()
	i.Use()
	if !i.Used() {
		t.Error("Used() = false after Use()")
	}
	if i.Used() {
		t.Error("Used() = true without another Use()")
	}
}

func TestUseAllocatesNothing(t *testing.T) {
	var i Item
	if n := testing.AllocsPerRun(100, i.Use); n != 0 {
		t.Errorf("Use() allocates %v times", n)
	}
}

func TestWhoWaitsGoesOnWhenItHasCome(t *testing.T) {
	var i Item
	i.Come() // without waiters
	first, second := i.Wait(), i.Wait()
	i.Come()
	<-first
	<-second
	select {
	case <-i.Wait():
		t.Error("a later caller does not wait for the next time")
	default:
	}
}
