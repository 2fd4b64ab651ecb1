"""JSON-RPC 2.0, one message per line: how programs in any language drive a sandbox. See docs/rpc.md."""
