package plans

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDeliver(t *testing.T) {
	data := SecretData{
		KeyPlan: []byte("old"), KeyMaxFailures: []byte("5"), KeyProbeStatuses: []byte("{}"),
		KeyFailedChecksum: []byte("aa"), KeyFailureCount: []byte("3"), "other": []byte("kept"),
	}
	Deliver(data, []byte("{}"), 0, Unlimited)
	want := SecretData{
		KeyPlan: []byte("{}"), KeyPlanState: []byte("pending"), KeyFailureThreshold: []byte("-1"),
		KeyFailedChecksum: []byte("aa"), KeyFailureCount: []byte("3"), "other": []byte("kept"),
	}
	if diff := cmp.Diff(want, data); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeDelivery(t *testing.T) {
	tests := map[string]struct {
		data SecretData
		want Delivery
	}{
		"nothing": {want: Delivery{MaxFailures: Unlimited, ProbePeriod: 5 * time.Second}},
		"all": {
			data: SecretData{KeyPlan: []byte("{}"), KeyMaxFailures: []byte("3"), KeyProbePeriodSeconds: []byte("0.5")},
			want: Delivery{Plan: []byte("{}"), MaxFailures: 3, ProbePeriod: 500 * time.Millisecond},
		},
		"unreadable": {
			data: SecretData{KeyMaxFailures: []byte("few"), KeyProbePeriodSeconds: []byte("-3")},
			want: Delivery{MaxFailures: Unlimited, ProbePeriod: 5 * time.Second},
		},
		"a period that is too short": {
			data: SecretData{KeyProbePeriodSeconds: []byte("0.000001")},
			want: Delivery{MaxFailures: Unlimited, ProbePeriod: MinProbePeriod},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, DecodeDelivery(test.data)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if (Delivery{}).Checksum() != "" || (Delivery{Plan: []byte("{}")}).Checksum() != Checksum([]byte("{}")) {
		t.Error("checksum of a delivery")
	}
}

func TestFailureThreshold(t *testing.T) {
	for value, want := range map[string]int{"": 1, "x": 1, "0": 1, "3": 3, "-1": Unlimited, "-7": Unlimited} {
		if got := FailureThreshold(SecretData{KeyFailureThreshold: []byte(value)}); got != want {
			t.Errorf("%q: got %d, want %d", value, got, want)
		}
	}
}
