package admission

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/hub/api/references"
)

const (
	credentialsPolicy = "drover-credentials"
	// maxNew is how many objects a user may name in one request of which he may not read all of the kind: Kubernetes allows an expression two
	// questions about rights, and a policy some 28.
	maxNew = 20
)

// credentials returns the policy by which nobody gets at a Secret or ConfigMap through a cluster that he could not read himself, and its
// binding. It is made of the table of references. What was named before, by whomever, may stay.
func credentials() (*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: credentialsPolicy},
	}
	fail := admissionregistrationv1.Fail
	policy.Spec.FailurePolicy = &fail
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
		writes("provisioning.cattle.io", "clusters"),
		writes("rke.cattle.io", "rkecontrolplanes", "rkecontrolplanetemplates", "etcdsnapshots"),
		writes("rke-machine.cattle.io", "*"),
	}}
	policy.Spec.Variables = []admissionregistrationv1.Variable{
		{Name: "config", Expression: configOf("object")},
		{Name: "oldConfig", Expression: configOf("oldObject")},
		// Each reference is a line of kind, namespace, name and field. Names that no object can have become one that none has.
		{Name: "before", Expression: allReferences("oldObject", "variables.oldConfig")},
		{Name: "named", Expression: allReferences("object", "variables.config") + ".filter(r, r != '' && !(r in variables.before))"},
		{Name: "allSecrets", Expression: "authorizer.group('').resource('secrets').namespace(object.metadata.namespace).check('get').allowed()"},
		{Name: "allConfigMaps",
			Expression: "authorizer.group('').resource('configmaps').namespace(object.metadata.namespace).check('get').allowed()"},
	}
	forbidden := metav1.StatusReasonForbidden
	for i := range maxNew {
		line := fmt.Sprintf("variables.named[%d]", i)
		policy.Spec.Validations = append(policy.Spec.Validations, admissionregistrationv1.Validation{
			Reason: &forbidden,
			Expression: fmt.Sprintf("size(variables.named) <= %[1]d || %[2]s || "+
				"authorizer.group('').resource(%[3]s == 'Secret' ? 'secrets' : 'configmaps').namespace(%[4]s).name(%[5]s).check('get').allowed()",
				i, mayReadAll(line), part(line, 0), part(line, 1), part(line, 2)),
			Message: "this names Secrets or ConfigMaps that you may not read; name such that you may read, or ask for the right to get " +
				"these",
			MessageExpression: credentialsMessage,
		})
	}
	policy.Spec.Validations = append(policy.Spec.Validations, admissionregistrationv1.Validation{
		Reason:     &forbidden,
		Expression: fmt.Sprintf("size(variables.named) <= %d || variables.named.all(r, %s)", maxNew, mayReadAll("r")),
		Message: fmt.Sprintf("this names more than %d Secrets and ConfigMaps at once that were not named before; "+
			"name them in several steps, or ask for the right to get all Secrets and ConfigMaps of the namespace", maxNew),
	})
	return policy, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: policy.APIVersion, Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: credentialsPolicy},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: credentialsPolicy, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
}

// credentialsMessage says what was named. The order of a map's keys is another one each time, so that an index says nothing here.
var credentialsMessage = fmt.Sprintf("(size(variables.named) == 1 ? '' : 'you may not read all of these: ') + "+
	"variables.named.map(r, %[4]s + ' names the ' + %[1]s + ' ' + %[3]s + ' in the namespace ' + %[2]s).join(', ') + "+
	"(size(variables.named) == 1 ? ', which you may not read; name one that you may read, or ask for the right to get this one' : "+
	"'; name such that you may read, or ask for the right to get them')",
	part("r", 0), part("r", 1), part("r", 2), part("r", 3))

func writes(group string, resources ...string) admissionregistrationv1.NamedRuleWithOperations {
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources},
	}}
}

// part is a part of the line of a reference: kind, namespace, name and field.
func part(line string, n int) string { return fmt.Sprintf("%s.split(' ')[%d]", line, n) }

// mayReadAll reports whether the user may read all objects of the kind in the namespace of a reference, which is asked once.
func mayReadAll(reference string) string {
	return fmt.Sprintf("(%[1]s.split(' ')[1] == object.metadata.namespace && (%[1]s.startsWith('Secret ') ? variables.allSecrets : "+
		"variables.allConfigMaps))", reference)
}

// configOf is the configuration of the cluster in an object, an empty one where there is none.
func configOf(object string) string {
	expression := object + ".spec"
	for _, holder := range slices.Backward(references.Holders) {
		path := holder.Config
		if path != "spec" {
			at := object + "." + path
			expression = fmt.Sprintf("%s ? dyn(%s) : %s", has(object, path), at, expression)
		}
	}
	return fmt.Sprintf("%[1]s == null || !has(%[1]s.spec) || %[1]s.spec == null ? dyn({}) : %[2]s", object, expression)
}

// has reports whether a path is there, and so is everything on the way.
func has(root, path string) string {
	var conditions []string
	at := root
	for _, field := range strings.Split(path, ".") {
		at += "." + field
		conditions = append(conditions, fmt.Sprintf("has(%[1]s) && %[1]s != null", at))
	}
	return strings.Join(conditions, " && ")
}

// allReferences is a list of all references in an object.
func allReferences(object, config string) string {
	var parts []string
	for _, rule := range references.Rules {
		root := config
		if rule.Of != "" {
			root = object
		}
		encode := func(value string) string { return encoded(rule, value) }
		parts = append(parts, walk(root, strings.Split(rule.Field, "."), 0, encode))
	}
	return fmt.Sprintf("(%s == null ? [''] : [%s].join('\\n').split('\\n'))", object, strings.Join(parts, ",\n"))
}

// walk is a text with a line for each value at a path, and empty lines.
func walk(at string, path []string, depth int, encode func(string) string) string {
	if len(path) == 0 {
		return fmt.Sprintf("(%[1]s == null ? '' : %[2]s)", at, encode("string("+at+")"))
	}
	name, each := strings.TrimRight(path[0], "[]{}"), fmt.Sprintf("x%d", depth)
	found, next := fmt.Sprintf("has(%[1]s.%[2]s) && %[1]s.%[2]s != null", at, name), at+"."+name
	if strings.Contains(name, "-") {
		found, next = fmt.Sprintf("'%[2]s' in %[1]s && type(%[1]s['%[2]s']) == string", at, name), fmt.Sprintf("%s['%s']", at, name)
	}
	var rest string
	switch {
	case strings.HasSuffix(path[0], "[]"):
		rest = fmt.Sprintf("%s.map(%s, %s).join('\\n')", next, each, walk(each, path[1:], depth+1, encode))
	case strings.HasSuffix(path[0], "{}"):
		rest = fmt.Sprintf("%[1]s.map(%[2]s, %[3]s).join('\\n')", next, each, walk(fmt.Sprintf("%s[%s]", next, each), path[1:], depth+1, encode))
	default:
		rest = walk(next, path[1:], depth+1, encode)
	}
	return fmt.Sprintf("(%s ? %s : '')", found, rest)
}

// encoded is the line for a value, or nothing where the value names nothing.
func encoded(rule references.Rule, value string) string {
	const own = "object.metadata.namespace"
	prefix := fmt.Sprintf("'%s ' + ", rule.Kind)
	suffix := fmt.Sprintf(" + ' %s'", rule.Field)
	name := fmt.Sprintf("(%[1]s.matches('^[a-zA-Z0-9._-]*$') ? %[1]s : '?')", value)
	if rule.Form == references.Name {
		return fmt.Sprintf("(%s == '' ? '' : %s)", value, prefix+own+" + ' ' + "+name+suffix)
	}
	if rule.Form == references.URL {
		value = value + ".trim()"
	}
	text, empty := value, value+" == ''"
	if rule.Form == references.URL {
		text, empty = value+".replace('secret://', '', 1)", "!"+value+".startsWith('secret://')"
	}
	colons := text + ".replace('/', ':')"
	// What has more than one separator, or characters that no name has, names nothing.
	return fmt.Sprintf("(%[1]s ? '' : !%[2]s.matches('^([a-zA-Z0-9._-]*:)?[a-zA-Z0-9._-]*$') ? %[3]s%[4]s + ' ?'%[5]s : "+
		"%[3]s(%[2]s.contains(':') ? %[2]s.split(':')[0] : %[4]s) + ' ' + (%[2]s.contains(':') ? %[2]s.split(':')[1] : %[2]s)%[5]s)",
		empty, colons, prefix, own, suffix)
}
