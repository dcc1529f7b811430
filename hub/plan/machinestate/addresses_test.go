package machinestate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSelectAddresses(t *testing.T) {
	for _, tc := range []struct {
		name                   string
		stored, reported, want Addresses
		ipv6                   bool
	}{
		{name: "nothing is known"},
		{
			name:     "one of each kind",
			reported: Addresses{Internal: []string{"10.0.0.1", "10.42.0.1"}, External: []string{"203.0.113.1"}},
			want:     Addresses{Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.1"}},
		},
		{
			name:     "an address that comes later or another order changes nothing",
			stored:   Addresses{Internal: []string{"10.0.0.1"}},
			reported: Addresses{Internal: []string{"10.0.0.9", "10.0.0.1"}},
			want:     Addresses{Internal: []string{"10.0.0.1"}},
		},
		{
			name:     "an address that is gone is replaced",
			stored:   Addresses{Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.1"}},
			reported: Addresses{Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.2"}},
			want:     Addresses{Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.2"}},
		},
		{
			name:   "a provider that says nothing for a while",
			stored: Addresses{Internal: []string{"10.0.0.1"}}, want: Addresses{Internal: []string{"10.0.0.1"}},
		},
		{
			name:   "a kind of address that is not reported any more",
			stored: Addresses{Internal: []string{"10.0.0.1"}}, reported: Addresses{External: []string{"203.0.113.1"}},
			want: Addresses{Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.1"}},
		},
		{
			name:     "IPv6 where the cluster has no use for it",
			reported: Addresses{Internal: []string{"fd00::1", "10.0.0.1"}}, want: Addresses{Internal: []string{"10.0.0.1"}},
		},
		{
			name: "IPv6 where the cluster uses it", ipv6: true,
			reported: Addresses{Internal: []string{"fd00::1", "10.0.0.1", "fd00::2"}}, want: Addresses{Internal: []string{"fd00::1", "10.0.0.1"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, SelectAddresses(tc.stored, tc.reported, tc.ipv6)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
