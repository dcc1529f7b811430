package admission

import (
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// evaluate returns why an object is refused, or "". The hub is who TestIdentities takes for it.
func evaluate(t *testing.T, name string, who user.Info, kind schema.GroupVersionKind, resourceName, subresource, before,
	after string) string {
	t.Helper()
	validator := validatorOf(t, name)
	resource := kind.GroupVersion().WithResource(resourceName)
	object, old, operation := parse(t, after), parse(t, before), admission.Create
	if before != "" {
		operation = admission.Update
	}
	record := admission.NewAttributesRecord(object, old, kind, "ns", "one", resource, subresource, operation, nil, false, who)
	result := validator.Validate(t.Context(), resource,
		&admission.VersionedAttributes{Attributes: record, VersionedObject: object, VersionedOldObject: old, VersionedKind: kind},
		nil, nil, celconfig.RuntimeCELCostBudget, mayRead{})
	for _, decision := range result.Decisions {
		if decision.Action != validating.ActionAdmit {
			return decision.Message
		}
	}
	return ""
}

// validators are the compiled policies, by name.
var validators sync.Map

func validatorOf(t *testing.T, name string) validating.Validator {
	t.Helper()
	if found, ok := validators.Load(name); ok {
		return found.(validating.Validator)
	}
	compiled := compile(t, name)
	validators.Store(name, compiled)
	return compiled
}

func compile(t *testing.T, name string) validating.Validator {
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
		messages = append(messages, nil)
		if expression := v.MessageExpression; expression != "" {
			messages[len(messages)-1] = &validating.MessageExpressionCondition{MessageExpression: expression}
		}
	}
	var matching []plugincel.ExpressionAccessor
	for _, c := range policy.Spec.MatchConditions {
		matching = append(matching, (*matchconditions.MatchCondition)(&c))
	}
	var matcher matchconditions.Matcher
	if len(matching) > 0 {
		matcher = matchconditions.NewMatcher(compiler.CompileCondition(matching, vars, environment.StoredExpressions),
			policy.Spec.FailurePolicy, "policy", "validate", name)
	}
	return validating.NewValidator(compiler.CompileCondition(conditions, vars, environment.StoredExpressions), matcher,
		compiler.CompileCondition(nil, vars, environment.StoredExpressions),
		compiler.CompileCondition(messages, plugincel.OptionalVariableDeclarations{}, environment.StoredExpressions), policy.Spec.FailurePolicy,
		nil)
}

func readPolicy(t *testing.T, name string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	objects, err := all()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
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
	t.Fatalf("there is no policy %s", name)
	return nil
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
