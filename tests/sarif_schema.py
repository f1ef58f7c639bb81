"""The part of SARIF 2.1.0 that we write, as a JSON schema: written from the text of the standard (its sections are
named), and stricter, in that nothing else may occur and that what GitHub's code scanning asks for is required."""

from typing import Any


def _object(required: str, optional: str = "", **members: Any) -> dict[str, Any]:
    assert set(members) == {*required.split(), *optional.split()}
    return {"type": "object", "properties": members, "required": required.split(), "additionalProperties": False}


def _list(items: Any, least: int = 0, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least, **more}


_TEXT = {"type": "string", "minLength": 1}
_COUNT = {"type": "integer", "minimum": 1}
_INDEX = {"type": "integer", "minimum": 0}
_LEVEL = {"enum": ["note", "warning", "error"]}                                             # 3.27.10; we have no "none"
_MESSAGE = _object("text", text=_TEXT)                                                      # 3.11

_SEGMENT = r"([A-Za-z0-9._~-]|%[0-9A-F]{2})+"
_ARTIFACT = {"oneOf": [                                                                     # 3.4, and RFC 3986
    _object("uri uriBaseId", uri={"type": "string", "pattern": f"^{_SEGMENT}(/{_SEGMENT})*$"},
            uriBaseId={"enum": ["%SRCROOT%", "%SCHEDLANG%"]}),
    _object("uri", uri={"type": "string", "pattern": f"^file://(/{_SEGMENT})+$"}),
]}

_REGION = _object("startLine", "startColumn endLine endColumn", startLine=_COUNT, startColumn=_COUNT,   # 3.30
                  endLine=_COUNT, endColumn=_COUNT)

_PHYSICAL = _object("artifactLocation", "region", artifactLocation=_ARTIFACT, region=_REGION)           # 3.29
_LOGICAL = _object("name kind", name=_TEXT, kind={"const": "function"})                                 # 3.33

_RULE = _object(                                                                            # 3.49, reportingDescriptor
    "id name shortDescription fullDescription help defaultConfiguration properties",
    id={"type": "string", "pattern": "^SL[0-9]{3}$"}, name={"type": "string", "pattern": "^[a-z-]+$"},
    shortDescription=_object("text", text={**_TEXT, "maxLength": 1024}),                    # the lengths are GitHub's
    fullDescription=_object("text", text={**_TEXT, "maxLength": 1024}),
    help=_object("text markdown", text=_TEXT, markdown=_TEXT),
    defaultConfiguration=_object("level", level=_LEVEL),                                    # 3.50
    properties=_object("tags", tags=_list(_TEXT, 1, uniqueItems=True)))                     # 3.8.2

_NOTIFICATION = _object("associatedRule level message", level=_LEVEL, message=_MESSAGE,     # 3.58
                        associatedRule=_object("id index", id=_TEXT, index=_INDEX))         # 3.52

_INVOCATION = _object(                                                                      # 3.20
    "executionSuccessful exitCode exitCodeDescription", "toolExecutionNotifications",
    executionSuccessful={"type": "boolean"}, exitCode={"enum": [0, 1, 2]}, exitCodeDescription=_TEXT,
    toolExecutionNotifications=_list(_NOTIFICATION, 1))

_RESULT = _object(                                                                          # 3.27
    "ruleId ruleIndex level message locations partialFingerprints occurrenceCount", "relatedLocations properties",
    ruleId=_TEXT, ruleIndex=_INDEX, level=_LEVEL, message=_MESSAGE, occurrenceCount=_COUNT,
    locations=_list(_object("physicalLocation", "logicalLocations", physicalLocation=_PHYSICAL,         # 3.28
                            logicalLocations=_list(_LOGICAL, 1)), 1, maxItems=1),
    partialFingerprints=_object("schedlangFinding/v1", **{"schedlangFinding/v1": {
        "type": "string", "pattern": "^[0-9a-f]{32}$"}}),
    relatedLocations=_list(_object("id message physicalLocation", id=_COUNT, message=_MESSAGE,
                                   physicalLocation=_PHYSICAL), 1, uniqueItems=True),
    properties={"type": "object", "minProperties": 1})

_RUN = _object(                                                                             # 3.14
    "tool columnKind originalUriBaseIds invocations results properties",
    tool=_object("driver", driver=_object("name version semanticVersion rules", name={"const": "schedlang"},
                                          version=_TEXT, semanticVersion=_TEXT, rules=_list(_RULE, uniqueItems=True))),
    columnKind={"const": "unicodeCodePoints"},
    originalUriBaseIds=_object("%SRCROOT%", "%SCHEDLANG%", **dict.fromkeys(
        ("%SRCROOT%", "%SCHEDLANG%"), _object("description", description=_MESSAGE))),
    invocations=_list(_INVOCATION, 1, maxItems=1), results=_list(_RESULT),
    properties=_object("sends", sends=_TEXT))

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **_object("$schema version runs", version={"const": "2.1.0"}, runs=_list(_RUN, 1, maxItems=1),      # 3.13
              **{"$schema": {"type": "string", "pattern": "^https://"}}),
}
