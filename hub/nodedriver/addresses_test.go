package nodedriver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAddresses: an address that the cloud may translate is none of the Node, with which k3s and RKE2 would not start; an IPv6 address is
// one, without which they do not start in a dual-stack cluster.
func TestAddresses(t *testing.T) {
	for _, tc := range []struct {
		driver, config string
		want           []Address
	}{
		{"openstack", `{}`, nil},
		{"openstack", `{"IPAddress": "198.51.100.1"}`, []Address{{Address: "198.51.100.1"}}},
		{"digitalocean", `{"IPAddress": "198.51.100.1"}`, []Address{{Internal: true, Address: "198.51.100.1"}}},
		{"digitalocean", `{"IPAddress": "198.51.100.1", "PrivateIPAddress": "10.0.0.1"}`, []Address{{Internal: true, Address: "10.0.0.1"},
			{Address: "198.51.100.1"}}},
		{"amazonec2", `{"IPAddress": "198.51.100.1", "PrivateIPAddress": "10.0.0.1", "IPv6Address": "2001:db8::1"}`, []Address{
			{Internal: true, Address: "10.0.0.1"}, {Address: "198.51.100.1"}, {Internal: true, Address: "2001:db8::1"}}},
		{"amazonec2", `{"IPv6Address": "2001:db8::1"}`, []Address{{Internal: true, Address: "2001:db8::1"}}},
	} {
		s := &State{Name: "a", Files: map[string][]byte{}}
		if err := s.setConfig(tc.driver, []byte(tc.config)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, s.Addresses()); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tc.driver, tc.config, diff)
		}
	}
}
