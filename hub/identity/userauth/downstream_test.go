package userauth

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestDownstream(t *testing.T) {
	for name, test := range map[string]struct {
		in, want user.DefaultInfo
		// otherAuthority is true in a cluster whose authority is not the hub's.
		otherAuthority bool
	}{
		"a person": {
			in: user.DefaultInfo{Name: "jane", UID: "7", Groups: []string{"ops", "system:authenticated"}, Extra: map[string][]string{
				"team": {"blue"}, "authentication.kubernetes.io/credential-id": {"X509SHA256=00"},
			}},
			want: user.DefaultInfo{Name: "jane", UID: "7", Groups: []string{"ops", "system:authenticated"},
				Extra: map[string][]string{"team": {"blue"}}},
		},
		"an administrator": {
			in:   user.DefaultInfo{Name: "root", Groups: []string{"system:masters"}},
			want: user.DefaultInfo{Name: "root", Groups: []string{"system:masters"}},
		},
		"an administrator in a cluster that was imported": {
			in:             user.DefaultInfo{Name: "root", Groups: []string{"system:masters", "system:authenticated"}},
			want:           user.DefaultInfo{Name: "root", Groups: []string{"drover:hub:system:masters", "system:authenticated"}},
			otherAuthority: true,
		},
		"a ServiceAccount of the management cluster": {
			in: user.DefaultInfo{Name: "system:serviceaccount:team:robot", Groups: []string{"system:serviceaccounts",
				"system:serviceaccounts:team", "system:authenticated"}},
			want: user.DefaultInfo{Name: "drover:hub:system:serviceaccount:team:robot", Groups: []string{
				"drover:hub:system:serviceaccounts", "drover:hub:system:serviceaccounts:team", "system:authenticated",
			}},
		},
		"a node of the management cluster": {
			in:   user.DefaultInfo{Name: "system:node:a", Groups: []string{"system:nodes"}},
			want: user.DefaultInfo{Name: "drover:hub:system:node:a", Groups: []string{"drover:hub:system:nodes"}},
		},
		"a group of kubeadm": {
			in:   user.DefaultInfo{Name: "kubeadm:x", Groups: []string{"kubeadm:cluster-admins"}},
			want: user.DefaultInfo{Name: "drover:hub:kubeadm:x", Groups: []string{"drover:hub:kubeadm:cluster-admins"}},
		},
		"somebody with names of the hub": {
			in: user.DefaultInfo{Name: "drover:hub:system:serviceaccount:team:robot", Groups: []string{"drover:controllers"}},
			want: user.DefaultInfo{Name: "drover:hub:drover:hub:system:serviceaccount:team:robot",
				Groups: []string{"drover:hub:drover:controllers"}},
		},
		"the hub as administrator in a cluster that was imported": {
			in:             user.DefaultInfo{Name: HubUser, Groups: []string{"drover:controllers", "system:masters"}},
			want:           user.DefaultInfo{Name: HubUser, Groups: []string{"drover:controllers"}},
			otherAuthority: true,
		},
		"the hub itself": {
			in:   user.DefaultInfo{Name: HubUser, Groups: []string{"drover:controllers"}},
			want: user.DefaultInfo{Name: HubUser, Groups: []string{"drover:controllers"}},
		},
	} {
		if diff := cmp.Diff(&test.want, Downstream(&test.in, !test.otherAuthority)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestImpersonated(t *testing.T) {
	for name, test := range map[string]struct{ in, want user.DefaultInfo }{
		"the hub": {
			in:   user.DefaultInfo{Name: HubUser, Groups: []string{"drover:controllers"}},
			want: user.DefaultInfo{Name: "drover:hub:system:drover:hub", Groups: []string{"drover:hub:drover:controllers"}},
		},
		"a ServiceAccount": {
			in: user.DefaultInfo{Name: "system:serviceaccount:kube-system:robot", Groups: []string{"system:serviceaccounts",
				"system:authenticated"}},
			want: user.DefaultInfo{Name: "drover:hub:system:serviceaccount:kube-system:robot",
				Groups: []string{"drover:hub:system:serviceaccounts", "system:authenticated"}},
		},
		"a person": {in: user.DefaultInfo{Name: "ann", Groups: []string{"devs"}}, want: user.DefaultInfo{Name: "ann", Groups: []string{"devs"}}},
	} {
		if diff := cmp.Diff(&test.want, Impersonated(&test.in, false)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
