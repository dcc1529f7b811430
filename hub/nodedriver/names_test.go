package nodedriver

import "testing"

// TestWithoutNames: a machine of OpenStack is removed also when its image does not exist any more, or has never existed.
func TestWithoutNames(t *testing.T) {
	for _, tt := range []struct{ driver, config, want string }{
		{"openstack", `{"FlavorId":"","FlavorName":"small","ImageId":"1b","ImageName":"debian","MachineId":"2c"}`,
			`{"FlavorId":"","ImageId":"1b","MachineId":"2c"}`},
		{"openstack", `{"FloatingIpPool":"public","IPAddress":"","NetworkName":"one","ServerGroupName":"two"}`, `{"IPAddress":""}`},
		{"openstack", `{"FloatingIpPool":"public","IPAddress":"198.51.100.1"}`, `{"FloatingIpPool":"public","IPAddress":"198.51.100.1"}`},
		{"lab", `{"ImageId":"1b","ImageName":"debian"}`, `{"ImageId":"1b","ImageName":"debian"}`},
		{"openstack", `no JSON`, `no JSON`},
	} {
		if got := string(withoutNames(tt.driver, []byte(tt.config))); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.config, got, tt.want)
		}
	}
}
