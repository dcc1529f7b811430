package admission

import (
	"bytes"
	"context"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// mayRead lets a user read one Secret and nothing else, and one user do everything.
type mayRead struct{ namespace, name string }

func (m mayRead) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "may-do-everything" && a.GetNamespace() == "" {
		return authorizer.DecisionAllow, "", nil
	}
	if a.GetVerb() == "get" && a.GetResource() == "secrets" && a.GetNamespace() == m.namespace && a.GetName() == m.name {
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
		{name: "not his", after: cluster("{s3: {cloudCredentialName: theirs}}"), denied: "etcd.s3.cloudCredentialName names the Secret theirs in the namespace ns, which you may not read"},
		{name: "elsewhere", after: cluster(`{s3: {cloudCredentialName: "other:mine"}}`), denied: "the Secret mine in the namespace other"},
		{name: "it was there", before: cluster("{s3: {cloudCredentialName: theirs}}"), after: cluster("{s3: {cloudCredentialName: theirs, bucket: b}}")},
		{name: "it was null", before: cluster("{s3: null}"), after: cluster("{s3: {cloudCredentialName: theirs}}"), denied: "theirs"},
		{name: "another one", before: cluster("{s3: {cloudCredentialName: theirs}}"), after: cluster("{s3: {cloudCredentialName: others}}"), denied: "others"},
		{name: "it is removed", before: cluster("{s3: {cloudCredentialName: theirs}}"), after: cluster("null")},
		{name: "control plane", after: "{metadata: {namespace: ns}, spec: {etcd: {s3: {cloudCredentialName: theirs}}}}", denied: "theirs"},
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
	const token, other, labelled, bare = "{spec: {hash: a}}", "{spec: {hash: b}}", "{metadata: {labels: {a: b}}, spec: {hash: a}}", "{metadata: {name: x}}"
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
	const (
		plan    = "{metadata: {namespace: ns, name: p}, type: rke.cattle.io/machine-plan}"
		marked  = "{metadata: {namespace: ns, name: p, annotations: {a: b}}, type: rke.cattle.io/machine-plan}"
		request = "{metadata: {namespace: ns, name: p}, type: rke.cattle.io/machine-request}"
		opaque  = "{metadata: {namespace: ns, name: p}, type: Opaque}"
		bare    = "{metadata: {namespace: ns, name: p}}"
		owned   = "{metadata: {namespace: ns, name: p, ownerReferences: [{apiVersion: rke.cattle.io/v1, kind: RKEBootstrap, name: b, uid: u}]}}"
		twice   = "{metadata: {namespace: ns, name: p, ownerReferences: [{apiVersion: rke.cattle.io/v1, kind: RKEBootstrap, name: b, uid: u}, {apiVersion: rke.cattle.io/v1, kind: RKEBootstrap, name: c, uid: v}]}}"
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
		{name: "somebody answers a machine request", resource: "secrets", who: somebody, before: request, after: request, denied: "a machine request"},
		{name: "somebody makes a Secret", resource: "secrets", who: somebody, after: opaque},
		{name: "somebody makes a Secret without a type", resource: "secrets", who: somebody, after: bare},
		{name: "somebody changes a Secret", resource: "secrets", who: somebody, before: opaque, after: opaque},
		{name: "somebody gives a Secret to a machine", resource: "secrets", who: somebody, before: bare, after: owned, denied: "an owner reference of the kind RKEBootstrap"},
		{name: "somebody gives a Secret to a Deployment", resource: "secrets", who: somebody, before: bare, after: foreign},
		{name: "somebody makes an account", resource: "serviceaccounts", who: somebody, after: bare},
		{name: "somebody makes the account of a machine", resource: "serviceaccounts", who: somebody, after: owned, denied: "an owner reference"},
		{name: "somebody gives an account to a machine", resource: "serviceaccounts", who: somebody, before: bare, after: owned, denied: "an owner reference"},
		{name: "somebody gives an account to another machine, too", resource: "serviceaccounts", who: somebody, before: owned, after: twice, denied: "an owner reference"},
		{name: "somebody changes an account of a machine", resource: "serviceaccounts", who: somebody, before: owned, after: owned},
		{name: "the garbage collector takes an owner away", resource: "serviceaccounts", who: collector, before: twice, after: owned},
		{name: "the hub makes the account of a machine", resource: "serviceaccounts", who: hub, after: owned},
		{name: "the hub writes the Secret of a token", resource: "secrets", who: hub, after: token},
		{name: "somebody writes the Secret of a token", resource: "secrets", who: somebody, after: token, denied: "the Secret of a registration token"},
		{name: "somebody changes the Secret of a token", resource: "secrets", who: somebody, before: token, after: token, denied: "the Secret of a registration token"},
		{name: "somebody has a token looked up", resource: "secrets", who: somebody, after: lookup, denied: "the Secret of a registration token"},
		{name: "somebody hides a token", resource: "secrets", who: somebody, before: lookup, after: opaque, denied: "the Secret of a registration token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kind := schema.GroupVersionKind{Version: "v1", Kind: map[string]string{"secrets": "Secret", "serviceaccounts": "ServiceAccount"}[tt.resource]}
			got := evaluate(t, "drover-machines", tt.who, kind, tt.resource, "", tt.before, tt.after)
			if (got != "") != (tt.denied != "") || !strings.Contains(got, tt.denied) {
				t.Errorf("got %q, want %q in it", got, tt.denied)
			}
		})
	}
}

// evaluate returns why an object is refused, or "". The hub is who TestIdentities takes for it.
func evaluate(t *testing.T, name string, who user.Info, kind schema.GroupVersionKind, resourceName, subresource, before, after string) string {
	t.Helper()
	policy := readPolicy(t, name)
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	vars := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	var variables []plugincel.NamedExpressionAccessor
	for _, v := range policy.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, vars, environment.StoredExpressions)
	var conditions, messages []plugincel.ExpressionAccessor
	for _, v := range policy.Spec.Validations {
		conditions = append(conditions, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		if expression := v.MessageExpression; expression != "" {
			messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: expression})
		}
	}
	validator := validating.NewValidator(compiler.CompileCondition(conditions, vars, environment.StoredExpressions), nil,
		compiler.CompileCondition(nil, vars, environment.StoredExpressions),
		compiler.CompileCondition(messages, plugincel.OptionalVariableDeclarations{}, environment.StoredExpressions), policy.Spec.FailurePolicy, nil)

	resource := kind.GroupVersion().WithResource(resourceName)
	object, old, operation := parse(t, after), parse(t, before), admission.Create
	if before != "" {
		operation = admission.Update
	}
	record := admission.NewAttributesRecord(object, old, kind, "ns", "one", resource, subresource, operation, nil, false, who)
	result := validator.Validate(t.Context(), resource, &admission.VersionedAttributes{Attributes: record, VersionedObject: object, VersionedOldObject: old, VersionedKind: kind},
		nil, nil, celconfig.RuntimeCELCostBudget, mayRead{"ns", "mine"})
	for _, decision := range result.Decisions {
		if decision.Action != validating.ActionAdmit {
			return decision.Message
		}
	}
	return ""
}

func readPolicy(t *testing.T, name string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(policies), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); err != nil {
			t.Fatalf("looking for the policy %s: %v", name, err)
		}
		if object.GetName() != name || object.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		if err := nameHub(object, `system:serviceaccount:cattle-system:"drover"`); err != nil {
			t.Fatal(err)
		}
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, policy); err != nil {
			t.Fatal(err)
		}
		return policy
	}
}

func parse(t *testing.T, text string) runtime.Object {
	t.Helper()
	if text == "" {
		return nil
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}
