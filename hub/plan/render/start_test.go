package render

import (
	"strings"
	"testing"
)

// TestStart: with these arguments, RKE2 ends as soon as it starts.
func TestStart(t *testing.T) {
	const cloud = "node-external-ip: cannot be set together with cloud-provider-name"
	for name, tc := range map[string]struct{ version, roles, config, want string }{
		"external address and cloud provider": {rke2, "ec", `{"cloud-provider-name": "aws", "node-external-ip": "203.0.113.5"}`, cloud},
		"the same on a worker":                {rke2, "w", `{"cloud-provider-name": "external", "node-external-ip": ["203.0.113.5"]}`, cloud},
		"external address":                    {rke2, "w", `{"node-external-ip": ["203.0.113.5"]}`, ""},
		"profile of an earlier release":       {rke2, "w", `{"profile": "cis-1.23"}`, `profile: is "cis-1.23"`},
		"profile that the release has":        {"v1.33.1+rke2r1", "w", `{"profile": "cis-1.23"}`, ""},
		"profile that it has no longer":       {"v1.33.2+rke2r1", "w", `{"profile": "cis-1.23"}`, `profile: is "cis-1.23"`},
		"profile of a release before":         {"v1.28.1+rke2r1", "w", `{"profile": "cis-1.23"}`, ""},
		"profile of a later release":          {"v1.99.0+rke2r1", "w", `{"profile": "stig"}`, ""},
		"profile":                             {rke2, "ec", `{"profile": "cis"}`, ""},
		"multus behind":                       {rke2, "ec", `{"cni": ["calico", "multus"]}`, "cni: has the plugins calico, multus"},
		"multus alone":                        {rke2, "ec", `{"cni": "multus"}`, "cni: is multus"},
		"three plugins":                       {rke2, "c", `{"cni": "multus,canal,calico"}`, "cni: has the plugins multus, canal, calico"},
		"space":                               {rke2, "c", `{"cni": "multus, calico"}`, "cni: has a space"},
		"multus in front":                     {rke2, "c", `{"cni": ["multus", "cilium"]}`, ""},
		"none":                                {rke2, "c", `{"cni": "none"}`, ""},
		"a plugin that there is not":          {rke2, "c", `{"cni": "calcio"}`, "cni: is calcio, which RKE2 does not have; it takes calico,"},
		"the same behind multus":              {rke2, "ec", `{"cni": ["multus", "weave"]}`, "cni: is multus, weave, which RKE2 does not have"},
		"no plugin of a worker":               {rke2, "w", `{"cni": "calcio"}`, ""},
		"a plugin of a later release":         {"v1.99.0+rke2r1", "ec", `{"cni": "ovn"}`, ""},
		"configuration of no cloud provider":  {rke2, "w", `{"cloud-provider-config": "/etc/cloud"}`, "cloud-provider-config: needs cloud"},
		"configuration of a cloud provider":   {rke2, "w", `{"cloud-provider-config": "/etc/cloud", "cloud-provider-name": "aws"}`, ""},
		"profile without the kernel's values": {rke2, "w", `{"profile": "cis", "protect-kernel-defaults": "false"}`, "defaults: cannot be false"},
		"another profile without them":        {rke2, "ec", `{"profile": "etcd", "protect-kernel-defaults": false}`, ""},
		"k3s":                                 {k3s, "ec", `{"node-external-ip": ["203.0.113.5"]}`, ""},
	} {
		in := machineOf(t, tc.version, "a", tc.roles)
		in.Cluster.Spec.MachineGlobalConfig = config(t, tc.config)
		_, problems := Plan(in)
		if err := problems.Err(); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
