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

// mayRead lets a user read one Secret and nothing else.
type mayRead struct{ namespace, name string }

func (m mayRead) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
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
			got := evaluate(t, tt.before, tt.after)
			if tt.denied == "" && got != "" || !strings.Contains(got, tt.denied) {
				t.Errorf("got %q, want %q", got, tt.denied)
			}
		})
	}
}

// evaluate returns why an object is refused, or "".
func evaluate(t *testing.T, before, after string) string {
	t.Helper()
	policy := readPolicy(t)
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
		conditions = append(conditions, &validating.ValidationCondition{Expression: v.Expression, Reason: v.Reason})
		messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
	}
	validator := validating.NewValidator(compiler.CompileCondition(conditions, vars, environment.StoredExpressions), nil,
		compiler.CompileCondition(nil, vars, environment.StoredExpressions),
		compiler.CompileCondition(messages, plugincel.OptionalVariableDeclarations{}, environment.StoredExpressions), policy.Spec.FailurePolicy, nil)

	kind := schema.GroupVersionKind{Group: "provisioning.cattle.io", Version: "v1", Kind: "Cluster"}
	resource := kind.GroupVersion().WithResource("clusters")
	object, old, operation := parse(t, after), parse(t, before), admission.Create
	if before != "" {
		operation = admission.Update
	}
	record := admission.NewAttributesRecord(object, old, kind, "ns", "one", resource, "", operation, nil, false, &user.DefaultInfo{Name: "writer"})
	result := validator.Validate(t.Context(), resource, &admission.VersionedAttributes{Attributes: record, VersionedObject: object, VersionedOldObject: old, VersionedKind: kind},
		nil, nil, celconfig.RuntimeCELCostBudget, mayRead{"ns", "mine"})
	for _, decision := range result.Decisions {
		if decision.Action != validating.ActionAdmit {
			return decision.Message
		}
	}
	return ""
}

func readPolicy(t *testing.T) *admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	if err := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(policies), 4096).Decode(policy); err != nil {
		t.Fatal(err)
	}
	return policy
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
