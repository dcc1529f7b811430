package render

import "testing"

func TestJoinURL(t *testing.T) {
	k3s, rke2, moved := cluster(t, "v1.36.3+k3s1"), cluster(t, "v1.36.3+rke2r1"), cluster(t, "v1.36.3+k3s1")
	moved.Spec.MachineGlobalConfig = config(t, `{"https-listen-port": "7443"}`)
	for want, got := range map[string]string{
		"https://10.0.0.1:6443":  JoinURL(k3s, "10.0.0.1"),
		"https://10.0.0.2:9345":  JoinURL(rke2, "10.0.0.2"),
		"https://10.0.0.3:7443":  JoinURL(moved, "10.0.0.3"),
		"https://[fd00::1]:6443": JoinURL(k3s, "fd00::1"),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
