package nodesim

import "drydock.dev/drydock/nodesim/volumeplugin"

// allPlugins are the kinds of volume this node has.
func (l *life) allPlugins() []volumeplugin.Plugin {
	return []volumeplugin.Plugin{l.csi}
}
