package install

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// contract is every option and variable of the install script of rancher-system-agent.
var contract = strings.Fields(`-a --all-roles -p --controlplane -e --etcd -w --worker --no-roles -n --node-name --address -i
	--internal-address -l --label
	--taint --taints -s --server -t --token -c --ca-checksum
	CATTLE_AGENT_LOGLEVEL CATTLE_AGENT_CONFIG_DIR CATTLE_AGENT_VAR_DIR CATTLE_AGENT_BIN_PREFIX CATTLE_SERVER CATTLE_TOKEN CATTLE_CA_CHECKSUM
	CATTLE_ROLE_CONTROLPLANE CATTLE_ROLE_ETCD CATTLE_ROLE_WORKER CATTLE_ROLE_NONE CATTLE_LABELS CATTLE_TAINTS CATTLE_NODE_NAME CATTLE_ADDRESS
	CATTLE_INTERNAL_ADDRESS CATTLE_AGENT_BINARY_BASE_URL CATTLE_AGENT_BINARY_URL CATTLE_AGENT_UNINSTALL_URL CATTLE_AGENT_BINARY_CHECKSUM
	CATTLE_AGENT_UNINSTALL_CHECKSUM CATTLE_AGENT_BINARY_LOCAL CATTLE_AGENT_BINARY_LOCAL_LOCATION CATTLE_AGENT_UNINSTALL_LOCAL
	CATTLE_AGENT_UNINSTALL_LOCAL_LOCATION CATTLE_PRESERVE_WORKDIR CATTLE_REMOTE_ENABLED CATTLE_LOCAL_ENABLED CATTLE_ID
	CATTLE_AGENT_STRICT_VERIFY
	STRICT_VERIFY CATTLE_AGENT_FALLBACK_PATH ARCH DEBUG HTTP_PROXY HTTPS_PROXY NO_PROXY`)

// keywords are the addresses that are asked of a cloud.
var keywords = strings.Fields(`awslocal awspublic doprivate dopublic azprivate azpublic gceinternal gceexternal packetlocal ` +
	`packetpublic ipify`)

// TestPageAndScript compares the page for operators, the help text and the script, so that none of them promises what another one lacks.
func TestPageAndScript(t *testing.T) {
	raw, err := os.ReadFile("../../docs/agent-install.md")
	if err != nil {
		t.Fatal(err)
	}
	page, help := string(raw), part("usage.txt")
	code := strings.Replace(compose(), help, "", 1)
	word := regexp.MustCompile("`(--?[a-z][a-z-]*|(?:CATTLE|HTTPS?|NO|STRICT)_[A-Z_]+|ARCH|DEBUG)[` ]")

	documented := map[string]bool{}
	tables := page[strings.Index(page, "## Options and variables"):strings.Index(page, "An address may be")]
	for _, found := range word.FindAllStringSubmatch(tables, -1) {
		documented[found[1]] = true
	}
	for _, name := range contract {
		if !documented[name] {
			t.Errorf("%s is not on the page", name)
		}
	}
	for name := range documented {
		switch {
		case strings.HasPrefix(name, "-") && !regexp.MustCompile(`(\t| )`+name+`( \||\))`).MatchString(code):
			t.Errorf("the option %s of the page is not in the script", name)
		case !strings.HasPrefix(name, "-") && !regexp.MustCompile(`\b`+name+`\b`).MatchString(code):
			t.Errorf("the variable %s of the page is not in the script", name)
		case name != "--labels" && name != "--taints" && !strings.Contains(help, name):
			t.Errorf("%s is not in the help text", name)
		}
	}
	for _, name := range keywords {
		if !strings.Contains(page, "`"+name+"`") || !strings.Contains(help, name) || !strings.Contains(code, name) {
			t.Errorf("the address %s is not on the page, in the help text or in the script", name)
		}
	}

	// What the script reads of its caller is documented, too.
	read := map[string]bool{}
	for _, found := range regexp.MustCompile(`\$\{((?:CATTLE|STRICT)_[A-Z_]+|ARCH|DEBUG)[:+}-]`).FindAllStringSubmatch(code, -1) {
		read[found[1]] = true
	}
	var missing []string
	for name := range read {
		if !documented[name] {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	if diff := cmp.Diff([]string(nil), missing); diff != "" {
		t.Errorf("read by the script and not on the page:\n%s", diff)
	}
}
