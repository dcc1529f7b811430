package testenv

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/drover-dev/drover/packaging/rbac"
)

// userAgent tells the hub's requests from those of tests in the audit log of the API server.
const userAgent = "drover-hub-under-test"

// auditPolicy logs every request without its body.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

// usageVariable names the directory into which each package writes the rights that its hub has used; empty for none.
const usageVariable = "DROVER_API_USAGE"

// request is what RBAC decides on.
type request struct{ verb, group, resource, name string }

func (r request) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%s %s.%s", r.verb, r.resource, r.group), ".")
}

// rule is the least that allows the request.
func (r request) rule() rbacv1.PolicyRule {
	rule := rbacv1.PolicyRule{Verbs: []string{r.verb}, APIGroups: []string{r.group}, Resources: []string{r.resource}}
	if r.name != "" {
		rule.ResourceNames = []string{r.name}
	}
	return rule
}

// readUsage reads the hub's requests from an audit log of the API server.
func readUsage(path string) (map[request]bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log of the API server: %w", err)
	}
	defer func() { _ = file.Close() }()
	used := map[request]bool{}
	for in := bufio.NewReader(file); ; {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return used, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the audit log of the API server: %w", err)
		}
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("decoding the audit log of the API server: %w", err)
		}
		if event.ObjectRef == nil || !strings.HasPrefix(event.UserAgent, userAgent) {
			continue
		}
		r := request{verb: event.Verb, group: event.ObjectRef.APIGroup, resource: event.ObjectRef.Resource, name: event.ObjectRef.Name}
		if event.ObjectRef.Subresource != "" {
			r.resource += "/" + event.ObjectRef.Subresource
		}
		// Names do not count for these.
		if slices.Contains([]string{"create", "list", "watch", "deletecollection"}, r.verb) {
			r.name = ""
		}
		used[r] = true
	}
}

// checkRights tells which requests of the hub its ClusterRole does not allow, and writes down what was used.
func (e *Env) checkRights() error {
	used, err := readUsage(filepath.Join(e.Dir, apiAudit))
	if err != nil {
		return err
	}
	clusterRules, namespaceRules, err := rbac.HubRules()
	if err != nil {
		return err
	}
	rules := slices.Concat(clusterRules, namespaceRules)
	var denied []string
	var lines []string
	for r := range used {
		lines = append(lines, strings.Join([]string{r.verb, r.group, r.resource, r.name}, "\t"))
		if ok, _ := validation.Covers(rules, []rbacv1.PolicyRule{r.rule()}); !ok && !slices.Contains(denied, r.String()) {
			denied = append(denied, r.String())
		}
	}
	if dir := os.Getenv(usageVariable); dir != "" {
		slices.Sort(lines)
		name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".test") + ".tsv"
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(lines, "\n")+"\n"), 0o644)
		}
		if err != nil {
			return fmt.Errorf("writing which rights were used: %w", err)
		}
	}
	if len(denied) > 0 {
		slices.Sort(denied)
		return fmt.Errorf("the hub has asked for what its ClusterRole (packaging/rbac/hub.yaml) does not allow: %s", strings.Join(denied, ", "))
	}
	return nil
}
