package bootstrapdata

import "go.yaml.in/yaml/v3"

// prepend puts an item in front of the list under key.
func prepend(root *yaml.Node, key string, item *yaml.Node) error {
	for i := 0; i < len(root.Content); i += 2 {
		if root.Content[i].Value != key {
			continue
		}
		list := root.Content[i+1]
		if list.Kind == yaml.AliasNode {
			list = list.Alias
		}
		switch {
		case list.Kind == yaml.ScalarNode && list.Tag == "!!null":
			root.Content[i+1] = &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{item}}
		case list.Kind == yaml.SequenceNode:
			list.Style = 0
			list.Content = append([]*yaml.Node{item}, list.Content...)
		default:
			return invalid("line %d: %s must be a list", list.Line, key)
		}
		return nil
	}
	root.Style = 0
	root.Content = append(root.Content, scalar(key), &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{item}})
	return nil
}

// mapping makes a mapping of keys and values in turn.
func mapping(fields ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Content: fields}
}

func scalar(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
}

// quoted is for texts that some readers would take for numbers.
func quoted(value string) *yaml.Node {
	node := scalar(value)
	node.Style = yaml.SingleQuotedStyle
	return node
}
