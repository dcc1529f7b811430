package admission

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/drover-dev/drover/hub/api/references"
)

// mayRead lets a user read objects that are called mine in the namespace ns, and all Secrets of the namespace open; one user may do
// everything, and one has the right of the infrastructure provider.
type mayRead struct{}

func (m mayRead) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "may-do-everything" && a.GetNamespace() == "" {
		return authorizer.DecisionAllow, "", nil
	}
	if a.GetUser().GetName() == "may-answer-requests" && a.GetResource()+"/"+a.GetSubresource() == "custommachines/requests" {
		return authorizer.DecisionAllow, "", nil
	}
	if a.GetVerb() != "get" || a.GetResource() != "secrets" && a.GetResource() != "configmaps" {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if a.GetNamespace() == "ns" && a.GetName() == "mine" || a.GetNamespace() == "open" && a.GetResource() == "secrets" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// TestCredentials evaluates the policy as an API server does, for a user who may read the Secret mine in the namespace ns.
func TestCredentials(t *testing.T) {
	cluster := func(s3 string) string { return "{metadata: {namespace: ns}, spec: {rkeConfig: {etcd: " + s3 + "}}}" }
	for _, tt := range []struct {
		name, before, after string
		// denied is part of the message; empty means that it is allowed.
		denied string
	}{
		{name: "no spec", after: "{metadata: {namespace: ns}}"},
		{name: "made elsewhere", after: "{metadata: {namespace: ns}, spec: {kubernetesVersion: v1}}"},
		{name: "no configuration of etcd", after: "{metadata: {namespace: ns}, spec: {rkeConfig: {}}}"},
		{name: "null", after: cluster("null")},
		{name: "null S3", after: cluster("{s3: null}")},
		{name: "no credential", after: cluster("{s3: {bucket: b}}")},
		{name: "null credential", after: cluster("{s3: {cloudCredentialName: null}}")},
		{name: "empty credential", after: cluster(`{s3: {cloudCredentialName: ""}}`)},
		{name: "his own", after: cluster("{s3: {cloudCredentialName: mine}}")},
		{name: "his own in full", after: cluster(`{s3: {cloudCredentialName: "ns:mine"}}`)},
		{name: "not his", after: cluster("{s3: {cloudCredentialName: theirs}}"),
			denied: "etcd.s3.cloudCredentialName names the Secret theirs in the namespace ns, which you may not read"},
		{name: "elsewhere", after: cluster(`{s3: {cloudCredentialName: "other:mine"}}`), denied: "the Secret mine in the namespace other"},
		{name: "it was there", before: cluster("{s3: {cloudCredentialName: theirs}}"),
			after: cluster("{s3: {cloudCredentialName: theirs, bucket: b}}")},
		{name: "it was null", before: cluster("{s3: null}"), after: cluster("{s3: {cloudCredentialName: theirs}}"), denied: "theirs"},
		{name: "another one", before: cluster("{s3: {cloudCredentialName: theirs}}"), after: cluster("{s3: {cloudCredentialName: others}}"),
			denied: "others"},
		{name: "it is removed", before: cluster("{s3: {cloudCredentialName: theirs}}"), after: cluster("null")},
		{name: "control plane", after: "{metadata: {namespace: ns}, spec: {etcd: {s3: {cloudCredentialName: theirs}}}}", denied: "theirs"},
		{name: "template", after: "{metadata: {namespace: ns}, spec: {template: {spec: {etcd: {s3: {cloudCredentialName: theirs}}}}}}",
			denied: "theirs"},
		{name: "elsewhere, with a slash", after: cluster(`{s3: {cloudCredentialName: "other/mine"}}`),
			denied: "the Secret mine in the namespace other"},
		{name: "two separators", after: cluster(`{s3: {cloudCredentialName: "ns:mine:x"}}`), denied: "the Secret ? in"},
		{name: "another reference in a name", after: cluster(`{s3: {cloudCredentialName: "mine x\nSecret ns mine"}}`), denied: "the Secret ? in"},
		{name: "all rights", after: "{metadata: {namespace: open}, spec: {rkeConfig: {etcd: {s3: {cloudCredentialName: theirs}}}}}"},
		{name: "all rights here only", after: `{metadata: {namespace: open}, spec: {rkeConfig: {etcd: {s3: {cloudCredentialName: "other:x"}}}}}`,
			denied: "in the namespace other"},
		{name: "the whole credential, null",
			after: "{metadata: {namespace: ns}, spec: {cloudCredentialSecretName: null, rkeConfig: {registries: {configs: {a: {tlsSecretName: " +
				"null}}}}}}"},
		{name: "null in every list", after: "{metadata: {namespace: ns}, spec: {rkeConfig: {registries: {configs: null}, " +
			"machineSelectorFiles: null, machineSelectorConfig: [{config: null}], machinePools: null, machineGlobalConfig: null}}}"},
		{name: "a configuration that is no text",
			after: "{metadata: {namespace: ns}, spec: {rkeConfig: {machineGlobalConfig: {cloud-provider-config: {a: b}}}}}"},
		{name: "a configuration in full",
			after: `{metadata: {namespace: ns}, spec: {rkeConfig: {machineGlobalConfig: {cloud-provider-config: "[Global]\na = b"}}}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kind := schema.GroupVersionKind{Group: "provisioning.cattle.io", Version: "v1", Kind: "Cluster"}
			got := evaluate(t, "drover-credentials", &user.DefaultInfo{Name: "writer"}, kind, "clusters", "", tt.before, tt.after)
			if tt.denied == "" && got != "" || !strings.Contains(got, tt.denied) {
				t.Errorf("got %q, want %q", got, tt.denied)
			}
		})
	}
}

// holding is an object that names something in the field of a rule.
func holding(path, value string) string {
	text := strconv.Quote(value)
	for _, segment := range slices.Backward(strings.Split(path, ".")) {
		name := strings.TrimRight(segment, "[]{}")
		switch {
		case strings.HasSuffix(segment, "[]"):
			text = fmt.Sprintf("{%s: [{}, %s]}", name, text)
		case strings.HasSuffix(segment, "{}"):
			text = fmt.Sprintf("{%s: {a: {}, b: %s}}", name, text)
		default:
			text = fmt.Sprintf("{%s: %s}", name, text)
		}
	}
	return "{metadata: {namespace: ns}, " + strings.TrimPrefix(text, "{")
}

// TestEveryReference: whatever field a user names an object in, he must be allowed to read it, or it was named before.
func TestEveryReference(t *testing.T) {
	for _, rule := range references.Rules {
		for kind, path := range rule.Paths() {
			t.Run(kind+" "+path, func(t *testing.T) {
				name := func(to string) string {
					if rule.Form == references.URL {
						to = "secret://" + to
					}
					return holding(path, to)
				}
				check := func(before, after string) string {
					return evaluate(t, "drover-credentials", &user.DefaultInfo{Name: "writer"}, schema.GroupVersionKind{Kind: kind}, "any", "", before,
						after)
				}
				if got := check("", name("mine")); got != "" {
					t.Errorf("his own: %s", got)
				}
				want := rule.Field + " names the " + rule.Kind + " theirs in the namespace ns, which you may not read"
				if got := check("", name("theirs")); !strings.HasPrefix(got, want) {
					t.Errorf("somebody else's: %q, want %q", got, want)
				}
				if got := check(name("mine"), name("theirs")); !strings.HasPrefix(got, want) {
					t.Errorf("somebody else's later: %q, want %q", got, want)
				}
				if got := check(name("theirs"), name("theirs")); got != "" {
					t.Errorf("it was there: %s", got)
				}
				if rule.Form != references.Name {
					if got := check("", name("other:mine")); !strings.Contains(got, "mine in the namespace other") {
						t.Errorf("elsewhere: %q", got)
					}
				}
			})
		}
	}
}

// TestManyReferences: many objects at a time are within what the API server lets a policy cost.
func TestManyReferences(t *testing.T) {
	registries := func(namespace, name string, n int) string {
		configs := make([]string, n)
		for i := range configs {
			configs[i] = fmt.Sprintf("h%d: {authConfigSecretName: %s}", i, strings.ReplaceAll(name, "#", strconv.Itoa(i)))
		}
		return fmt.Sprintf("{metadata: {namespace: %s}, spec: {rkeConfig: {registries: {configs: {%s}}}}}", namespace,
			strings.Join(configs, ", "))
	}
	for _, tt := range []struct{ name, before, after, denied string }{
		{name: "as many as there are questions", after: registries("ns", "mine", maxNew)},
		{name: "one more", after: registries("ns", "mine", maxNew+1), denied: "this names more than 20 Secrets and ConfigMaps at once"},
		{name: "one that is not his among them",
			after:  strings.Replace(registries("ns", "mine", maxNew), "h7: {authConfigSecretName: mine", "h7: {authConfigSecretName: theirs", 1),
			denied: "theirs"},
		{name: "many with a right to all", after: registries("open", "s#", 300)},
		{name: "many that were there", before: registries("ns", "s#", 300), after: registries("ns", "s#", 300)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kind := schema.GroupVersionKind{Group: "provisioning.cattle.io", Version: "v1", Kind: "Cluster"}
			got := evaluate(t, "drover-credentials", &user.DefaultInfo{Name: "writer"}, kind, "clusters", "", tt.before, tt.after)
			if tt.denied == "" && got != "" || !strings.Contains(got, tt.denied) {
				t.Errorf("got %q, want %q", got, tt.denied)
			}
		})
	}
}

// TestIdentities: Tokens and TunnelAgents are the hub's to write.
func TestIdentities(t *testing.T) {
	hub := &user.DefaultInfo{Name: `system:serviceaccount:cattle-system:"drover"`}
	somebody := &user.DefaultInfo{Name: "somebody", Groups: []string{"system:authenticated", "editors"}}
	administrator := &user.DefaultInfo{Name: "root", Groups: []string{"system:masters"}}
	const token, other, bare = "{spec: {hash: a}}", "{spec: {hash: b}}", "{metadata: {name: x}}"
	const labelled = "{metadata: {labels: {a: b}}, spec: {hash: a}}"
	for _, tt := range []struct {
		name, subresource, before, after string
		who                              user.Info
		denied                           bool
	}{
		{name: "the hub makes one", who: hub, after: token},
		{name: "the hub changes one", who: hub, before: token, after: other},
		{name: "the hub tells when it was used", who: hub, subresource: "status", before: token, after: token},
		{name: "an administrator restores one", who: administrator, after: token},
		{name: "somebody makes one", who: somebody, after: token, denied: true},
		{name: "nobody in particular makes one", who: &user.DefaultInfo{Name: user.Anonymous}, after: token, denied: true},
		{name: "somebody changes one", who: somebody, before: token, after: other, denied: true},
		{name: "somebody empties one, to fill it again later", who: somebody, before: token, after: bare, denied: true},
		{name: "somebody fills one", who: somebody, before: bare, after: token, denied: true},
		{name: "somebody labels one", who: somebody, before: token, after: labelled},
		{name: "somebody labels an empty one", who: somebody, before: bare, after: bare},
		{name: "somebody tells when it was used", who: somebody, subresource: "status", before: token, after: token, denied: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kind := schema.GroupVersionKind{Group: "management.cattle.io", Version: "v3", Kind: "Token"}
			got := evaluate(t, "drover-identities", tt.who, kind, "tokens", tt.subresource, tt.before, tt.after)
			if (got != "") != tt.denied || tt.denied && !strings.HasPrefix(got, "only the hub makes and changes these") {
				t.Errorf("got %q, denied is to be %v", got, tt.denied)
			}
		})
	}
}

// TestMachines: what machines and registration tokens are known by is the hub's to write.
func TestMachines(t *testing.T) {
	hub := &user.DefaultInfo{Name: `system:serviceaccount:cattle-system:"drover"`}
	somebody := &user.DefaultInfo{Name: "somebody", Groups: []string{"system:authenticated", "editors"}}
	collector := &user.DefaultInfo{Name: "system:serviceaccount:kube-system:generic-garbage-collector"}
	masters := &user.DefaultInfo{Name: "root", Groups: []string{"system:masters"}}
	administrator := &user.DefaultInfo{Name: "may-do-everything"}
	infrastructure := &user.DefaultInfo{Name: "may-answer-requests"}
	const (
		plan    = "{metadata: {namespace: ns, name: p}, type: rke.cattle.io/machine-plan}"
		marked  = "{metadata: {namespace: ns, name: p, annotations: {a: b}}, type: rke.cattle.io/machine-plan}"
		request = "{metadata: {namespace: ns, name: p}, type: rke.cattle.io/machine-request}"
		opaque  = "{metadata: {namespace: ns, name: p}, type: Opaque}"
		bare    = "{metadata: {namespace: ns, name: p}}"
		owned   = "{metadata: {namespace: ns, name: p, ownerReferences: [{apiVersion: rke.cattle.io/v1, kind: RKEBootstrap, name: b, uid: u}]}}"
		twice   = "{metadata: {namespace: ns, name: p, ownerReferences: [{apiVersion: rke.cattle.io/v1, kind: RKEBootstrap, name: b, uid: u}, " +
			"{apiVersion: rke.cattle.io/v1, kind: RKEBootstrap, name: c, uid: v}]}}"
		foreign = "{metadata: {namespace: ns, name: p, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: b, uid: u}]}}"
		token   = "{metadata: {namespace: c-m-1, name: crt-token-x}, type: Opaque}"
		lookup  = `{metadata: {namespace: ns, name: x, labels: {management.cattle.io/registration-token: "true"}}, type: Opaque}`
	)
	for _, tt := range []struct {
		name, resource, before, after string
		who                           user.Info
		denied                        string
	}{
		{name: "the hub makes a plan Secret", resource: "secrets", who: hub, after: plan},
		{name: "an administrator moves a plan Secret", resource: "secrets", who: masters, after: plan},
		{name: "an administrator without that group", resource: "secrets", who: administrator, after: plan},
		{name: "somebody makes a plan Secret", resource: "secrets", who: somebody, after: plan, denied: "a plan Secret"},
		{name: "somebody marks a plan Secret", resource: "secrets", who: somebody, before: plan, after: marked},
		{name: "somebody makes a machine request", resource: "secrets", who: somebody, after: request, denied: "a machine request"},
		{name: "somebody answers a machine request", resource: "secrets", who: somebody, before: request, after: request,
			denied: "a machine request"},
		{name: "the infrastructure provider answers a machine request", resource: "secrets", who: infrastructure, before: request,
			after: request},
		{name: "the infrastructure provider makes a machine request", resource: "secrets", who: infrastructure, after: request,
			denied: "a machine request"},
		{name: "the infrastructure provider makes a plan Secret", resource: "secrets", who: infrastructure, after: plan, denied: "a plan Secret"},
		{name: "the infrastructure provider gives an account to a machine", resource: "serviceaccounts", who: infrastructure, before: bare,
			after: owned, denied: "an owner reference"},
		{name: "somebody makes a Secret", resource: "secrets", who: somebody, after: opaque},
		{name: "somebody makes a Secret without a type", resource: "secrets", who: somebody, after: bare},
		{name: "somebody changes a Secret", resource: "secrets", who: somebody, before: opaque, after: opaque},
		{name: "somebody gives a Secret to a machine", resource: "secrets", who: somebody, before: bare, after: owned,
			denied: "an owner reference of the kind RKEBootstrap"},
		{name: "somebody gives a Secret to a Deployment", resource: "secrets", who: somebody, before: bare, after: foreign},
		{name: "somebody makes an account", resource: "serviceaccounts", who: somebody, after: bare},
		{name: "somebody makes the account of a machine", resource: "serviceaccounts", who: somebody, after: owned, denied: "an owner reference"},
		{name: "somebody gives an account to a machine", resource: "serviceaccounts", who: somebody, before: bare, after: owned,
			denied: "an owner reference"},
		{name: "somebody gives an account to another machine, too", resource: "serviceaccounts", who: somebody, before: owned, after: twice,
			denied: "an owner reference"},
		{name: "somebody changes an account of a machine", resource: "serviceaccounts", who: somebody, before: owned, after: owned},
		{name: "the garbage collector takes an owner away", resource: "serviceaccounts", who: collector, before: twice, after: owned},
		{name: "the hub makes the account of a machine", resource: "serviceaccounts", who: hub, after: owned},
		{name: "the hub writes the Secret of a token", resource: "secrets", who: hub, after: token},
		{name: "somebody writes the Secret of a token", resource: "secrets", who: somebody, after: token,
			denied: "the Secret of a registration token"},
		{name: "somebody changes the Secret of a token", resource: "secrets", who: somebody, before: token, after: token,
			denied: "the Secret of a registration token"},
		{name: "somebody has a token looked up", resource: "secrets", who: somebody, after: lookup, denied: "the Secret of a registration token"},
		{name: "somebody hides a token", resource: "secrets", who: somebody, before: lookup, after: opaque,
			denied: "the Secret of a registration token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kind := schema.GroupVersionKind{Version: "v1",
				Kind: map[string]string{"secrets": "Secret", "serviceaccounts": "ServiceAccount"}[tt.resource]}
			got := evaluate(t, "drover-machines", tt.who, kind, tt.resource, "", tt.before, tt.after)
			if (got != "") != (tt.denied != "") || !strings.Contains(got, tt.denied) {
				t.Errorf("got %q, want %q in it", got, tt.denied)
			}
		})
	}
}

// TestManagementNames: the name of a management Cluster is the hub's to write, and that of whoever may change the management Cluster.
func TestManagementNames(t *testing.T) {
	hub := &user.DefaultInfo{Name: `system:serviceaccount:cattle-system:"drover"`}
	tenant, mover := &user.DefaultInfo{Name: "tenant", Groups: []string{"system:authenticated"}}, &user.DefaultInfo{Name: "may-do-everything"}
	annotated := func(name string) string {
		return "{metadata: {namespace: ns, annotations: {provisioning.cattle.io/management-cluster-name: " + name + "}}, spec: {}}"
	}
	specified := func(name string) string {
		return "{metadata: {namespace: ns}, spec: {managementClusterName: " + name + "}}"
	}
	const bare = "{metadata: {namespace: ns}}"
	const labelled = "{metadata: {namespace: ns, labels: {a: b}, annotations: {b: c}}, spec: {kubernetesVersion: v1}}"
	for _, tt := range []struct {
		name, before, after string
		who                 user.Info
		denied              bool
	}{
		{name: "no name", who: tenant, after: bare},
		{name: "no name, changed", who: tenant, before: bare, after: labelled},
		{name: "empty names", who: tenant, before: annotated(`""`), after: specified(`""`)},
		{name: "null", who: tenant, before: bare, after: specified("null")},
		{name: "a tenant makes one with the annotation", who: tenant, after: annotated("c-m-a"), denied: true},
		{name: "a tenant makes one with the field", who: tenant, after: specified("c-m-a"), denied: true},
		{name: "a tenant sets the annotation", who: tenant, before: labelled, after: annotated("c-m-a"), denied: true},
		{name: "a tenant sets the field", who: tenant, before: bare, after: specified("c-m-a"), denied: true},
		{name: "a tenant changes the annotation", who: tenant, before: annotated("c-m-b"), after: annotated("c-m-a"), denied: true},
		{name: "a tenant changes the field", who: tenant, before: specified("c-m-b"), after: specified("c-m-a"), denied: true},
		{name: "a tenant removes the annotation", who: tenant, before: annotated("c-m-b"), after: bare, denied: true},
		{name: "a tenant removes the field", who: tenant, before: specified("c-m-b"), after: bare, denied: true},
		{name: "a tenant moves the name from one to the other", who: tenant, before: specified("c-m-b"), after: annotated("c-m-b"), denied: true},
		{name: "a tenant keeps the annotation", who: tenant, before: annotated("c-m-b"), after: annotated("c-m-b")},
		{name: "a tenant keeps the field", who: tenant, before: specified("c-m-b"), after: specified("c-m-b")},
		{name: "nobody in particular", who: &user.DefaultInfo{Name: user.Anonymous}, after: annotated("c-m-a"), denied: true},
		{name: "the hub makes one", who: hub, after: specified("c-m-a")},
		{name: "the hub changes one", who: hub, before: bare, after: annotated("c-m-a")},
		{name: "clusterctl moves one", who: mover, after: annotated("c-m-a")},
		{name: "an administrator removes one", who: mover, before: specified("c-m-a"), after: bare},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kind := schema.GroupVersionKind{Group: "rke.cattle.io", Version: "v1", Kind: "RKEControlPlane"}
			got := evaluate(t, "drover-management-names", tt.who, kind, "rkecontrolplanes", "", tt.before, tt.after)
			if (got != "") != tt.denied || tt.denied && !strings.HasPrefix(got, "only the hub sets the annotation") {
				t.Errorf("got %q, denied is to be %v", got, tt.denied)
			}
		})
	}
}
