package systemd

import "testing"

func TestUnitOf(t *testing.T) {
	for cgroups, want := range map[string]string{
		"0::/system.slice/rancher-system-agent.service\n":                                                    "rancher-system-agent.service",
		"0::/system.slice/rancher-system-agent.service/below\n":                                              "rancher-system-agent.service",
		"12:pids:/system.slice/x.service\n1:name=systemd:/system.slice/rancher-system-agent.service\n0::/\n": "rancher-system-agent.service",
		"0::/user.slice/user-0.slice/user@0.service/app.slice/mine.service\n":                                "",
		"0::/user.slice/user-0.slice/session-1.scope\n":                                                      "",
		"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope\n":                                    "",
		"0::/system.slice/run-r1.scope\n":                                                                    "",
		"0::/\n":                                                                                             "",
		"":                                                                                                   "",
	} {
		if got := unitOf(cgroups); got != want {
			t.Errorf("%q: got %q, want %q", cgroups, got, want)
		}
	}
}
