# safeshuffle_embed(target function files...): makes text files part of the program, so that nothing is
# looked up at run time. Defines safeshuffle::core::<function>(), which a header must declare,
# which returns one {stem, text} per file.
function(safeshuffle_embed target function)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DFUNCTION=${function} "-DFILES=${ARGN}"
            -P ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake
    DEPENDS ${ARGN} ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake
    COMMENT "Embedding ${function}" VERBATIM)
  # A target of its own, because the command is not known in the directory where ${target} is defined.
  add_custom_target(${function} DEPENDS ${output})
  add_dependencies(${target} ${function})
  target_sources(${target} PRIVATE ${output})
endfunction()
