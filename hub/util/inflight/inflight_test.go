package inflight

import "testing"

func TestLimiter(t *testing.T) {
	l := New(3, 2)
	first, ok := l.Acquire("a")
	if !ok {
		t.Fatal("the first slot is refused")
	}
	if _, ok := l.Acquire("a"); !ok {
		t.Error("the share of a key is refused")
	}
	if _, ok := l.Acquire("a"); ok {
		t.Error("a key gets more than its share")
	}
	second, ok := l.Acquire("b")
	if !ok {
		t.Fatal("a key is refused because of another one's share")
	}
	if _, ok := l.Acquire("c"); ok {
		t.Error("more slots are given than there are")
	}
	first()
	if _, ok := l.Acquire("a"); !ok {
		t.Error("a released slot is not given again")
	}
	if second(); l.byKey["b"] != 0 || len(l.byKey) != 1 {
		t.Errorf("keys without slots are kept: %v", l.byKey)
	}
}
