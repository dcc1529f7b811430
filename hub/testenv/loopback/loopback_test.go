package loopback

import (
	"strings"
	"testing"
)

func TestFreeAddress(t *testing.T) {
	address, err := FreeAddress("127.0.0.1")
	if err != nil || !strings.HasPrefix(address, "127.0.0.1:2") {
		t.Errorf("%s, %v", address, err)
	}
	if _, err := FreeAddress("192.0.2.1"); err == nil {
		t.Error("an address of another machine is free")
	}
}

// TestAddressesDiffer: no address is for two programs, of which neither listens yet.
func TestAddressesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 500 {
		address, err := FreeAddress("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if seen[address] {
			t.Fatalf("%s is given twice", address)
		}
		seen[address] = true
	}
}
