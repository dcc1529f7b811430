package loopback

import (
	"net"
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

// TestReserved: what was given here is taken for other processes, and free for a listener.
func TestReserved(t *testing.T) {
	address, err := FreeAddress("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if other, err := net.ListenPacket("udp", address); err == nil {
		_ = other.Close()
		t.Error("another process would be given the address, too")
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
}
